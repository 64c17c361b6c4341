# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports of the host that lead into containers; pure.

A mapping is an element of the value of the capability `portMappings`, e.g.
`[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]` (CNI CONVENTIONS).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol, Self

from cnm_bridge.errors import Refused
from cnm_bridge.kernel import IpInterface
from cnm_bridge.wire import PortRequest
from spec import JsonObject, as_object, find_str, get_int, get_list, get_str

__all__ = [
    "CAPABILITY",
    "PROTOCOLS",
    "FreePorts",
    "PortMapping",
    "parse_mappings",
    "place_of",
    "refuse_other_families",
]

CAPABILITY: Final = "portMappings"

PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
"""The names of the IP protocols that have ports, by number."""


class FreePorts(Protocol):
    """Tells of ports that programs of the host have."""

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return why a program could not have a port, None if it could."""

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Return a port that is free; raise `OSError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that leads into a container.

    Attributes:
        protocol: `tcp`, `udp` or `sctp`.
        host_ip: The host's address, None for all.
        host_port: The port there.
        container_port: The port inside.
    """

    protocol: str
    host_ip: IPv4Address | IPv6Address | None
    host_port: int
    container_port: int

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the capability's form."""
        host_ip = find_str(document, "hostIP")
        return cls(
            protocol=get_str(document, "protocol"),
            host_ip=ip_address(host_ip) if host_ip else None,
            host_port=get_int(document, "hostPort"),
            container_port=get_int(document, "containerPort"),
        )

    def to_json(self) -> JsonObject:
        """Return the capability's form."""
        return {
            "hostPort": self.host_port,
            "containerPort": self.container_port,
            "protocol": self.protocol,
            **({"hostIP": str(self.host_ip)} if self.host_ip is not None else {}),
        }

    def __str__(self) -> str:
        """Give Docker's form, e.g. `127.0.0.1:8080->80/tcp`."""
        return f"{place_of(self.host_ip, self.host_port)}->{self.container_port}/{self.protocol}"

    def overlaps(self, other: "PortMapping") -> bool:
        """Return whether a packet could be for both."""
        return (self.protocol, self.host_port) == (other.protocol, other.host_port) and _meet(
            self.host_ip, other.host_ip
        )

    def may_serve(self, request: PortRequest) -> bool:
        """Return whether it is on one of the ports that a request names."""
        return (
            self.protocol == PROTOCOLS.get(request.protocol)
            and request.host_port <= self.host_port <= request.host_port_end
            and _meet(self.host_ip, request.host_ip)
        )


def parse_mappings(capability_args: JsonObject) -> Iterator[PortMapping]:
    """Yield the ports that capability arguments have."""
    for item in get_list(capability_args, CAPABILITY):
        yield PortMapping.from_json(as_object(item, CAPABILITY))


def refuse_other_families(requests: Iterable[PortRequest], addresses: Iterable[IpInterface]) -> None:
    """Refuse to publish at an address of the host what has no address of its family inside: no rule leads there.

    Args:
        requests: The ports to publish.
        addresses: The container's addresses, as the publishing plugins receive them.

    Raises:
        Refused: The first such address; or there are none inside at all.
    """
    versions = {address.version for address in addresses}
    if not versions:
        raise Refused(
            "ports cannot be published: the result of the plugins has no address; "
            "each plugin after the first must pass on the result of the one before"
        )
    for request in requests:
        if request.host_ip is not None and request.host_ip.version not in versions:
            place = place_of(request.host_ip, request.host_port)
            raise Refused(
                f"port {place} cannot be published: the container has no IPv{request.host_ip.version} address; publish "
                "it at an address of the other family, or give the CNI configuration a subnet of this one"
            )


def _meet(one: IPv4Address | IPv6Address | None, other: IPv4Address | IPv6Address | None) -> bool:
    """Return whether two sets of addresses have one in common: one address, all of a family, or all (None)."""
    if one is None or other is None:
        return True
    return one.version == other.version and (one == other or one.is_unspecified or other.is_unspecified)


def place_of(host_ip: IPv4Address | IPv6Address | None, port: int) -> str:
    """Return a port of the host as Docker writes it, e.g. `127.0.0.1:8080`."""
    if host_ip is None:
        return str(port)
    return f"{host_ip}:{port}" if isinstance(host_ip, IPv4Address) else f"[{host_ip}]:{port}"
