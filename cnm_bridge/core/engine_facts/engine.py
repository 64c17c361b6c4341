# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the engine reports about itself in `GET /info`, and its version; pure."""

import re
from dataclasses import dataclass
from typing import Final, Self

from cni_bridge_spec import JsonObject, find_object, find_str, get_str, get_strings

_ROOTLESS: Final = "name=rootless"
_REMAPS_USERS: Final = "name=userns"
_NO_SWARM: Final = "inactive"
_IDS: Final = re.compile(r"/\d+\.(\d+)$")
_NUMBER: Final = re.compile(r"v?(\d+)\.(\d+)")

SANDBOX_AT_JOIN: Final = 28
"""The first major version that makes the sandbox before it calls the driver (moby `daemon/start_linux.go`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """An engine.

    Attributes:
        version: E.g. `28.5.2+dfsg3`.
        is_rootless: Whether it runs in a user namespace, without root's rights on the host.
        is_swarm_node: Whether it is in a swarm; None if it does not report it.
        data_directory: Where it stores containers and networks, e.g. `/var/lib/docker`.
        network_drivers: The names of its network drivers: those of enabled managed plugins with their tag, and those of
            other plugins that it has called.
        remaps_users: Whether containers are in a user namespace of their own, unless they choose the host's.
    """

    version: str
    is_rootless: bool
    is_swarm_node: bool | None = None
    data_directory: str = ""
    network_drivers: tuple[str, ...] = ()
    remaps_users: bool = False

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the answer to `GET /info`."""
        state = find_str(find_object(document, "Swarm") or {}, "LocalNodeState")
        security = get_strings(document, "SecurityOptions")
        return cls(
            version=get_str(document, "ServerVersion"),
            is_rootless=_ROOTLESS in security,
            is_swarm_node=None if state is None else state != _NO_SWARM,
            data_directory=find_str(document, "DockerRootDir") or "",
            network_drivers=get_strings(find_object(document, "Plugins") or {}, "Network"),
            remaps_users=_REMAPS_USERS in security,
        )


def find_remapped_group(data_directory: str) -> int | None:
    """Return the group in the name of an engine's directory with `userns-remap`, e.g. `/var/lib/docker/100000.100000`.

    None if it has no such name. The directory then belongs to the group (moby `daemon/daemon_unix.go`,
    setupDaemonRoot); another one may be called so by chance.
    """
    found = _IDS.search(data_directory)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True, order=True)
class EngineVersion:
    """The version of an engine, e.g. 28.5."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version in `ServerVersion` of `GET /info`, e.g. `28.5.2+dfsg3`; None if the text has none."""
        numbers = _NUMBER.match(text)
        return None if numbers is None else cls(int(numbers[1]), int(numbers[2]))

    @property
    def makes_sandbox_first(self) -> bool:
        """Whether the sandbox of a starting container exists when Join is called."""
        return self.major >= SANDBOX_AT_JOIN

    @property
    def calls_before_start(self) -> bool:
        """Whether it calls the driver after it has written resolv.conf and before the process starts."""
        return self >= DNS_BEFORE_START

    @property
    def forgets_networks(self) -> bool:
        """Whether it forgets a container's networks if its start fails at Join (moby #51758; seen with 29.7.2)."""
        return self >= _FORGETS_NETWORKS

    @property
    def programs_internal(self) -> bool:
        """Whether it asks for the ports of containers on internal networks after Join (seen with 29.7.3, not 28.5.2).

        Others drop them. The call Join has them on all networks.
        """
        return self.major >= _PROGRAMS_INTERNAL

    @property
    def disables_ipv6(self) -> bool:
        """Whether it disables IPv6 in every sandbox, and enables it on each link that has an IPv6 address.

        `net.ipv6.conf.all.disable_ipv6` of a sandbox then does not show what the user wants (moby 25.0
        `osl/namespace_linux.go`, setIPv6).
        """
        return self.major < _LEAVES_IPV6

    @property
    def mistakes_addresses(self) -> bool:
        """Whether it takes IPv4 addresses of drivers for IPv6 addresses (moby `getEtcHostsAddrs`, without Unmap)."""
        return self.major == _MISTAKES_ADDRESSES

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


DNS_BEFORE_START: Final = EngineVersion(28, 1)
"""The first version that calls EndpointOperInfo after it has written resolv.conf and before the process starts."""

_FORGETS_NETWORKS: Final = EngineVersion(29, 1)
_PROGRAMS_INTERNAL: Final = 29
_LEAVES_IPV6: Final = 26
_MISTAKES_ADDRESSES: Final = 28  # from 28.0 to 28.5
