# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Port mappings from the host to containers; pure.

A mapping is an element of the value of the capability `portMappings`, e.g.
`[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]` (CNI CONVENTIONS).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol, Self

from cni_bridge_spec import JsonObject, as_object, find_str, get_int, get_list, get_str
from cni_bridge_state import PortRequest
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import IpInterface

CAPABILITY: Final = "portMappings"

PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
"""IP protocol number → name, for the protocols that have ports."""


class FreePorts(Protocol):
    """Checks the ports that programs of the host use."""

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return the reason why a program could not bind a port, None if it could."""

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Return a free port; raise `OSError` if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that is forwarded to a container.

    Attributes:
        protocol: `tcp`, `udp` or `sctp`.
        host_ip: The address of the host, None for all addresses.
        host_port: The port on the host.
        container_port: The port in the container.
    """

    protocol: str
    host_ip: IPv4Address | IPv6Address | None
    host_port: int
    container_port: int

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form of the capability."""
        host_ip = find_str(document, "hostIP")
        return cls(
            protocol=get_str(document, "protocol"),
            host_ip=ip_address(host_ip) if host_ip else None,
            host_port=get_int(document, "hostPort"),
            container_port=get_int(document, "containerPort"),
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form of the capability."""
        return {
            "hostPort": self.host_port,
            "containerPort": self.container_port,
            "protocol": self.protocol,
            **({"hostIP": str(self.host_ip)} if self.host_ip is not None else {}),
        }

    def __str__(self) -> str:
        """Return Docker's notation, e.g. `127.0.0.1:8080->80/tcp`."""
        return f"{place_of(self.host_ip, self.host_port)}->{self.container_port}/{self.protocol}"

    def overlaps(self, other: "PortMapping") -> bool:
        """Return whether a packet could match both mappings."""
        return (self.protocol, self.host_port) == (other.protocol, other.host_port) and _meet(
            self.host_ip, other.host_ip
        )

    def may_serve(self, request: PortRequest) -> bool:
        """Return whether this mapping uses one of the ports of a request."""
        return (
            self.protocol == PROTOCOLS.get(request.protocol)
            and request.host_port <= self.host_port <= request.host_port_end
            and _meet(self.host_ip, request.host_ip)
        )


def parse_mappings(capability_args: JsonObject) -> Iterator[PortMapping]:
    """Yield the port mappings in capability arguments."""
    for item in get_list(capability_args, CAPABILITY):
        yield PortMapping.from_json(as_object(item, CAPABILITY))


def refuse_other_families(requests: Iterable[PortRequest], addresses: Iterable[IpInterface]) -> None:
    """Refuse to publish on an address of the host if the container has no address of the same family.

    Args:
        requests: The ports to publish.
        addresses: The container's addresses in the result that the publishing plugins receive.

    Raises:
        Refused: There is such a request, or the container has no address at all.
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
    """Return whether two hosts' addresses overlap; each is one address, the wildcard of a family, or None for all."""
    if one is None or other is None:
        return True
    return one.version == other.version and (one == other or one.is_unspecified or other.is_unspecified)


def place_of(host_ip: IPv4Address | IPv6Address | None, port: int) -> str:
    """Return address and port in Docker's notation, e.g. `127.0.0.1:8080`."""
    if host_ip is None:
        return str(port)
    return f"{host_ip}:{port}" if isinstance(host_ip, IPv4Address) else f"[{host_ip}]:{port}"
