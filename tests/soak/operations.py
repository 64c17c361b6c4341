# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the soak does: operations on containers and networks, and what may be killed meanwhile."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Kill", "Kind", "Operation", "Round"]


class Kind(StrEnum):
    """What may be done; the values are what an operator reads."""

    RUN = "run"
    CREATE = "create"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    KILL = "kill"
    CRASH = "crash"
    REMOVE = "rm"
    CONNECT = "connect"
    DISCONNECT = "disconnect"
    CREATE_NETWORK = "network create"
    REMOVE_NETWORK = "network rm"


class Kill(StrEnum):
    """What is killed with SIGKILL while operations are under way; what is killed starts again at once."""

    DAEMON = "daemon"
    DOCKERD = "dockerd"
    BOTH = "daemon and dockerd"
    PLUGIN = "plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do.

    Attributes:
        kind: What.
        container: Its name; None for what is done to networks.
        network: The network that is made, removed, connected or disconnected, or that a container is made on.
        list: The network configuration list that a network is made with.
        restarts: Whether a container is made with a restart policy (`always`).
        port: The port of the host that a container is made with, for its own port 80; None: it publishes none.
        address: The address that a container is made with, on its first network; None: any.
        others: Further networks that a container is made on.
    """

    kind: Kind
    container: str | None = None
    network: str | None = None
    list: str | None = None
    restarts: bool = False
    port: int | None = None
    address: str | None = None
    others: tuple[str, ...] = ()

    @property
    def writes(self) -> str:
        """The one thing that it changes, and nothing else may change meanwhile: a container or a network."""
        subject = self.container or self.network
        assert subject is not None
        return subject

    @property
    def names(self) -> frozenset[str]:
        """All that it speaks of."""
        return frozenset(name for name in (self.container, self.network, *self.others) if name)

    def __str__(self) -> str:
        made_with = f"({self.list})" if self.list else ""
        policy = "--restart" if self.restarts else ""
        port = f"-p {self.port}:80" if self.port else ""
        address = f"--ip {self.address}" if self.address else ""
        first = self.network and f"{self.network}{made_with}"
        words = (self.kind.value, self.container, first, *self.others, policy, port, address)
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Operations that are done at the same time, and what is killed meanwhile.

    Attributes:
        operations: None of them changes what another speaks of.
        kill: What is killed, None: nothing.
        delay_s: How long after the operations have begun.
        plugin: Which plugin is killed, counted as they are seen at work from then on, from 0.
    """

    operations: tuple[Operation, ...]
    kill: Kill | None = None
    delay_s: float = 0.0
    plugin: int = 0
