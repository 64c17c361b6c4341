# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Port mappings from the host to containers, and which endpoint has claimed a port; pure.

A mapping is an element of the value of the capability `portMappings`, e.g.
`[{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]` (CNI CONVENTIONS). Ten thousand
ports of one container are not unusual (SIP, TURN), so no lookup of a claim iterates over all of them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

from cni_bridge_spec import JsonObject, as_object, find_str, get_int, get_list, get_str
from cni_bridge_state import EndpointId, EndpointRecord, PortRequest
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import CannotPublish, Refused
from cnm_bridge.core.link_state import IpInterface

CAPABILITY: Final = "portMappings"
ANY_PORT: Final[JsonObject] = {CAPABILITY: [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}
"""For DEL only: `portmap` deletes its rules, by container ID, only if it receives at least one port."""
_CERTAIN_KEYS: Final = frozenset({"type", "capabilities", "snat"})
"""Keys of `portmap` whose values it accepts, if their types are right, which is checked before."""
PROTOCOLS: Final = {6: "tcp", 17: "udp", 132: "sctp"}
"""IP protocol number → name, for the protocols that have ports."""


def publishing_plugins(network: NetworkConfigurationList) -> tuple[PluginConfiguration, ...]:
    """Return the plugins of a list that publish ports; the first one makes the link and cannot run again."""
    return tuple(plugin for plugin in network.plugins[1:] if CAPABILITY in plugin.capabilities)


def idle_without_ports(network: NetworkConfigurationList) -> frozenset[int]:
    """Return the positions of the plugins `portmap`, whose ADD without ports only prints the previous result.

    containernetworking/plugins `plugins/meta/portmap/main.go`, cmdAdd. So the ADD of an endpoint leaves them out, and
    no DEL of them is needed before an ADD with ports. One with further keys runs: it may refuse their values, which a
    user should see at the first container.
    """
    return frozenset(
        index
        for index, plugin in enumerate(network.plugins)
        if index > 0
        and plugin.type == "portmap"
        and CAPABILITY in plugin.capabilities
        and plugin.document.keys() <= _CERTAIN_KEYS
    )


def plugins_without_delete(record: EndpointRecord) -> frozenset[int]:
    """Return the positions of the plugins for which no DEL is pending: it has completed, or they have not run."""
    has_ports = get_list(record.attachment.capability_args, CAPABILITY)
    idle = frozenset[int]() if has_ports else idle_without_ports(Endpoint(record).network)
    return idle.union(record.deleted)


def makes_nothing_without_ports(publishers: NetworkConfigurationList) -> bool:
    """Return whether all publishers are `portmap`: without ports none of them has made anything."""
    return all(plugin.type == "portmap" for plugin in publishers.plugins)


def cannot_publish(network: NetworkConfigurationList) -> CannotPublish:
    """Return the error for a list without such a plugin."""
    where = "" if network.source is None else f" ({network.source})"
    return CannotPublish(
        f"ports cannot be published (-p, -P): CNI configuration {network.name}{where} has no plugin after its first "
        'with the capability portMappings; add { "type": "portmap", "capabilities": { "portMappings": true } } to its '
        "plugins, and start the container again"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that is forwarded to a container.

    Attributes:
        protocol: `tcp`, `udp` or `sctp`.
        host_ip: The address of the host, None for all addresses.
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
        return (self.protocol, self.host_port) == (other.protocol, other.host_port) and _overlap(
            self.host_ip, other.host_ip
        )

    def may_serve(self, request: PortRequest) -> bool:
        """Return whether this mapping uses one of the ports of a request."""
        return (
            self.protocol == PROTOCOLS.get(request.protocol)
            and request.host_port <= self.host_port <= request.host_port_end
            and _overlap(self.host_ip, request.host_ip)
        )


def parse_mappings(capability_args: JsonObject) -> Iterator[PortMapping]:
    """Yield the port mappings in capability arguments."""
    for item in get_list(capability_args, CAPABILITY):
        yield PortMapping.from_json(as_object(item, CAPABILITY))


def refuse_other_families(requests: Iterable[PortRequest], addresses: Iterable[IpInterface]) -> None:
    """Refuse to publish on an address of the host if the container has no address of the same family, or none at all.

    Its addresses are those in the result that the publishing plugins receive.
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


def _overlap(one: IPv4Address | IPv6Address | None, other: IPv4Address | IPv6Address | None) -> bool:
    """Return whether two hosts' addresses overlap; each is one address, the wildcard of a family, or None for all."""
    if one is None or other is None:
        return True
    return one.version == other.version and (one == other or one.is_unspecified or other.is_unspecified)


def place_of(host_ip: IPv4Address | IPv6Address | None, port: int) -> str:
    """Return address and port in Docker's notation, e.g. `127.0.0.1:8080`."""
    if host_ip is None:
        return str(port)
    return f"{host_ip}:{port}" if isinstance(host_ip, IPv4Address) else f"[{host_ip}]:{port}"


class PortClaims:
    """The ports of endpoints. Two endpoints may claim the same port; the caller decides whether that is allowed."""

    def __init__(self) -> None:
        self._by_endpoint: dict[EndpointId, dict[PortMapping, None]] = {}
        self._by_port: dict[tuple[str, int], list[tuple[EndpointId, PortMapping]]] = {}

    def of(self, endpoint_id: EndpointId) -> Collection[PortMapping]:
        """Return the ports of an endpoint, in the order in which they were claimed."""
        return self._by_endpoint.get(endpoint_id, {}).keys()

    def add(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        """Assign a port to an endpoint, which may have it already."""
        own = self._by_endpoint.setdefault(endpoint_id, {})
        if mapping not in own:
            own[mapping] = None
            self._by_port.setdefault((mapping.protocol, mapping.host_port), []).append((endpoint_id, mapping))

    def discard(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        """Remove a port of an endpoint, if it has that port."""
        own = self._by_endpoint.get(endpoint_id, {})
        if mapping in own:
            del own[mapping]
            self._leave(endpoint_id, mapping)
        if not own:
            self._by_endpoint.pop(endpoint_id, None)

    def release(self, endpoint_id: EndpointId) -> None:
        """Remove all ports of an endpoint."""
        for mapping in self._by_endpoint.pop(endpoint_id, {}):
            self._leave(endpoint_id, mapping)

    def find_overlapping(self, mapping: PortMapping) -> Iterator[EndpointId]:
        """Yield the endpoints with a port that could receive the same packets as `mapping`."""
        for endpoint_id, claimed in self._by_port.get((mapping.protocol, mapping.host_port), ()):
            if mapping.overlaps(claimed):
                yield endpoint_id

    def find_serving(self, request: PortRequest, port: int) -> Iterator[EndpointId]:
        """Yield the endpoints that have `port`, one of the range of a request, on an address of the request."""
        protocol = PROTOCOLS.get(request.protocol)
        for endpoint_id, claimed in self._by_port.get((protocol, port), ()) if protocol else ():
            if claimed.may_serve(request):
                yield endpoint_id

    def _leave(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        place = (mapping.protocol, mapping.host_port)
        claims = self._by_port[place]
        if len(claims) == 1:
            del self._by_port[place]
        else:
            claims.remove((endpoint_id, mapping))
