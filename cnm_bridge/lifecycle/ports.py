# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports of the host: which of them a container gets, and whether two want the same; pure but for the asking of others.

A choice is the value of the capability `portMappings`, e.g.
`[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]` (CNI CONVENTIONS).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol, Self

from cnm_bridge.errors import CannotPublish, Refused
from cnm_bridge.kernel import IpInterface
from cnm_bridge.wire import PortRequest
from spec import JsonObject, find_str, get_int, get_objects, get_str

__all__ = ["CAPABILITY", "FreePorts", "PortMapping", "choose_ports", "parse_mappings", "refuse_other_families"]

CAPABILITY: Final = "portMappings"

_PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}

_TRIES: Final = 64
"""How many free ports the kernel is asked for that turn out to be others'."""


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
        """Give the capability's form."""
        return {
            "hostPort": self.host_port,
            "containerPort": self.container_port,
            "protocol": self.protocol,
            **({"hostIP": str(self.host_ip)} if self.host_ip is not None else {}),
        }

    def __str__(self) -> str:
        """Give Docker's form, e.g. `127.0.0.1:8080->80/tcp`."""
        return f"{_place(self.host_ip, self.host_port)}->{self.container_port}/{self.protocol}"

    def overlaps(self, other: "PortMapping") -> bool:
        """Tell whether a packet could be for both."""
        return (self.protocol, self.host_port) == (other.protocol, other.host_port) and _meet(
            self.host_ip, other.host_ip
        )

    def may_serve(self, request: PortRequest) -> bool:
        """Tell whether it is on one of the ports that a request names."""
        return (
            self.protocol == _PROTOCOLS.get(request.protocol)
            and request.host_port <= self.host_port <= request.host_port_end
            and _meet(self.host_ip, request.host_ip)
        )


def parse_mappings(capability_args: JsonObject) -> tuple[PortMapping, ...]:
    """Return the ports that capability arguments have."""
    return tuple(map(PortMapping.from_json, get_objects(capability_args, CAPABILITY)))


def refuse_other_families(requests: Iterable[PortRequest], addresses: Iterable[IpInterface]) -> None:
    """Refuse to publish at an address of the host what has no address of its family inside: no rule leads there.

    Args:
        requests: What is to be published.
        addresses: The container's, as the plugins that publish are told.

    Raises:
        CannotPublish: The first such address; or there are none inside at all.
    """
    versions = {address.version for address in addresses}
    if not versions:
        raise CannotPublish(
            "ports cannot be published: the result of the plugins has no address; "
            "each plugin after the first must pass on the result of the one before"
        )
    for request in requests:
        if request.host_ip is not None and request.host_ip.version not in versions:
            place = _place(request.host_ip, request.host_port)
            raise CannotPublish(
                f"port {place} cannot be published: the container has no IPv{request.host_ip.version} address; publish "
                "it at an address of the other family, or give the CNI configuration a subnet of this one"
            )


def choose_ports(
    requests: Iterable[PortRequest],
    earlier: Sequence[PortMapping],
    find_owner: Callable[[PortMapping], str | None],
    free: FreePorts,
) -> tuple[PortMapping, ...]:
    """Return a port of the host for each request.

    Args:
        requests: What is to be published.
        earlier: What was chosen for the same endpoint before; it is chosen again where that is possible.
        find_owner: Returns whose a port is already, in words.
        free: The ports of programs.

    Raises:
        Refused: A port is another's, or none is free; or the protocol is none that has ports.
    """
    chosen: list[PortMapping] = []

    def find_obstacle(mapping: PortMapping) -> str | None:
        if any(mapping.overlaps(other) for other in chosen):
            return "it is to be published twice"
        owner = find_owner(mapping)
        return owner or free.find_obstacle(mapping.protocol, mapping.host_ip, mapping.host_port)

    for request in dict.fromkeys(requests):
        protocol = _PROTOCOLS.get(request.protocol)
        if protocol is None:
            raise Refused(f"ports of IP protocol {request.protocol} cannot be published, only tcp, udp and sctp")
        chosen.append(_choose(request, protocol, earlier, find_obstacle, free))
    return tuple(chosen)


def _choose(
    request: PortRequest,
    protocol: str,
    earlier: Sequence[PortMapping],
    find_obstacle: Callable[[PortMapping], str | None],
    free: FreePorts,
) -> PortMapping:
    def mapping(port: int) -> PortMapping:
        return PortMapping(
            protocol=protocol, host_ip=request.host_ip, host_port=port, container_port=request.container_port
        )

    wanted = range(request.host_port, request.host_port_end + 1) if request.host_port else range(1, 1 << 16)
    for old in earlier:
        if old.host_port in wanted and old == mapping(old.host_port) and not find_obstacle(old):
            return old
    if request.host_port:
        return _first_of_range(list(map(mapping, wanted)), find_obstacle)
    obstacle: str | None = None
    for _ in range(_TRIES):
        try:
            proposed = mapping(free.propose(protocol, request.host_ip))
        except OSError as exc:
            obstacle = exc.strerror or str(exc)
            break
        obstacle = find_obstacle(proposed)
        if obstacle is None:
            return proposed
    raise Refused(f"no port of the host is free for {request.container_port}/{protocol}: {obstacle}")


def _first_of_range(
    candidates: Sequence[PortMapping], find_obstacle: Callable[[PortMapping], str | None]
) -> PortMapping:
    obstacle: str | None = None
    for candidate in candidates:
        obstacle = find_obstacle(candidate)
        if obstacle is None:
            return candidate
    first, last = candidates[0], candidates[-1]
    if len(candidates) == 1:
        raise Refused(f"port {_place(first.host_ip, first.host_port)}/{first.protocol} cannot be published: {obstacle}")
    raise Refused(
        f"no port of {_place(first.host_ip, first.host_port)}-{last.host_port}/{first.protocol} can be published; "
        f"the last: {obstacle}"
    )


def _meet(one: IPv4Address | IPv6Address | None, other: IPv4Address | IPv6Address | None) -> bool:
    """Tell whether two sets of addresses have one in common: one address, all of a family, or all (None)."""
    if one is None or other is None:
        return True
    return one.version == other.version and (one == other or one.is_unspecified or other.is_unspecified)


def _place(host_ip: IPv4Address | IPv6Address | None, port: int) -> str:
    if host_ip is None:
        return str(port)
    return f"{host_ip}:{port}" if isinstance(host_ip, IPv4Address) else f"[{host_ip}]:{port}"
