# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The soak's operations on containers and networks, and what happens to daemons and plugins meanwhile."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of operations, with the words of the docker command."""

    RUN = "run"
    PARTNER = "run --network container:"
    """Run a container in the network namespace of another one."""
    CREATE = "create"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    KILL = "kill"
    CRASH = "crash"
    REMOVE = "rm"
    UPDATE = "update"
    """Remove a container and make it again with the MAC of the old one, as Watchtower and Portainer do."""
    CONNECT = "connect"
    DISCONNECT = "disconnect"
    CREATE_NETWORK = "network create"
    REMOVE_NETWORK = "network rm"


class Kill(StrEnum):
    """What is killed with SIGKILL while operations run, or done instead; daemons are restarted at once."""

    DAEMON = "daemon"
    DOCKERD = "dockerd"
    BOTH = "daemon and dockerd"
    PLUGIN = "plugin"
    REBOOT = "everything, by a reboot"
    """As soon as the operations have ended: all processes, links and rules end, and the boot ID changes."""
    STOP_DAEMON = "nothing, the daemon is stopped and continued"
    STOP_PLUGIN = "nothing, a plugin is stopped and continued"

    @property
    def ends_containers(self) -> bool:
        """Whether all containers end, and those with a restart policy start again."""
        return self in (Kill.DOCKERD, Kill.BOTH, Kill.REBOOT)

    @property
    def excuses(self) -> bool:
        """Whether an operation may fail because of it."""
        return self in (Kill.DAEMON, Kill.DOCKERD, Kill.BOTH, Kill.PLUGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    Attributes:
        kind: Its kind.
        container: The container's name; None for an operation on a network.
        network: The network that is created, removed, connected or disconnected, or on which a container is created.
        list: The network configuration list of a new network.
        restarts: Whether a new container has a restart policy (`always`).
        port: The host port of a new container, for its own port 80; None if it publishes none.
        address: The address of a new container on its first network; None for any.
        others: Further networks of a new container.
        mac: The MAC address of a new container on its first network; None for any.
        partner: The container whose network namespace a new container shares.
    """

    kind: Kind
    container: str | None = None
    network: str | None = None
    list: str | None = None
    restarts: bool = False
    port: int | None = None
    address: str | None = None
    others: tuple[str, ...] = ()
    mac: str | None = None
    partner: str | None = None

    @property
    def writes(self) -> str:
        """The only container or network that it changes, which no other operation may change meanwhile."""
        subject = self.container or self.network
        assert subject is not None
        return subject

    def __str__(self) -> str:
        made_with = f"({self.list})" if self.list else ""
        policy = "--restart" if self.restarts else ""
        port = f"-p {self.port}:80" if self.port else ""
        address = f"--ip {self.address}" if self.address else ""
        first = self.network and f"{self.network}{made_with}"
        mac = f"--mac-address {self.mac}" if self.mac else ""
        words = (self.kind.value, self.container, first, self.partner, *self.others, policy, port, address, mac)
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Operations that run at the same time, and what is killed meanwhile.

    Attributes:
        operations: None of them changes what another one names.
        first: How many of them start first; the others start when those have had time to reach their plugins.
        kill: What is killed, None for nothing.
        delay_s: The time from the start of the operations to the kill.
        plugin: The number of the plugin to kill, in the order in which running plugins are seen from then on, from 0.
    """

    operations: tuple[Operation, ...]
    first: int = 0
    kill: Kill | None = None
    delay_s: float = 0.0
    plugin: int = 0
