# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""NetworkDriver requests and replies as records; pure.

Source: moby `daemon/libnetwork/drivers/remote/api/api.go`, `endpoint_info.go`. The caller has validated a body with its
schema in `spec/cnm`; the functions here check only the syntax of addresses, and raise `BadRequest`.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Final

from cni_bridge_spec import (
    JsonObject,
    JsonValue,
    find_int,
    find_object,
    find_str,
    get_bool,
    get_int,
    get_objects,
    get_str,
    get_strings,
)
from cni_bridge_state import EndpointId, NetworkId, PoolRecord, PortRequest, RequestedInterface
from cnm_bridge.core.errors import BadRequest

_GENERIC: Final = "com.docker.network.generic"
_INTERNAL: Final = "com.docker.network.internal"
_PORT_MAP: Final = "com.docker.network.portmap"
_NAME_SERVERS: Final = "com.docker.network.endpoint.dnsservers"
_MAC: Final = "com.docker.network.endpoint.macaddress"
_ENABLE_IPV4: Final = "com.docker.network.enable_ipv4"
_ENABLE_IPV6: Final = "com.docker.network.enable_ipv6"
_DOCKERS_OWN: Final = "com.docker.network."
_ADDED_BY_DOCKER: Final = frozenset({_MAC, "com.docker.network.endpoint.name"})
"""Docker adds these options with a text value to an endpoint. All other options with a text value are the user's."""

LOCAL_SPACE: Final = "CniBridgeLocal"
GLOBAL_SPACE: Final = "CniBridgeGlobal"
OWN_SPACES: Final = (LOCAL_SPACE, GLOBAL_SPACE)
"""This driver's address spaces, as Docker's IPAM driver: the local and the global one. CreateNetwork does not name the
IPAM driver, but the space."""

_NULL_POOLS: Final = frozenset({IPv4Network("0.0.0.0/0"), IPv6Network("::/0")})
"""The pools of Docker's null IPAM driver, which stand for "no pool"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNetwork:
    """A CreateNetwork request.

    Attributes:
        network_id: Docker's network ID. The request does not contain the name.
        options: The user's `-o` options.
        ipv4: Whether IPv4 is enabled in Docker's IPAM; None before Engine 28, which does not send it.
        pools: The address pools that Docker's IPAM driver chose, both families; none with the null driver.
    """

    network_id: NetworkId
    options: Mapping[str, str]
    internal: bool
    ipv4: bool | None
    ipv6: bool
    pools: tuple[PoolRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReference:
    """A request with only the IDs of a network and an endpoint."""

    network_id: NetworkId
    endpoint_id: EndpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateEndpoint:
    """A CreateEndpoint request.

    Attributes:
        requested: The values that Docker has chosen; the reply must not contain them.
        options: The user's `driver-opt` options, including Docker's own.
        has_ports: Whether the container publishes ports, on this or another of its networks.
        name_servers: Which servers Docker's own one asks for the container (`--dns`, or dockerd's `dns`); none if they
            were not given, or the network is internal.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    requested: RequestedInterface
    options: Mapping[str, str]
    has_ports: bool = False
    name_servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A Join request.

    Attributes:
        sandbox_key: Path of the sandbox's namespace; before Engine 28 it may not exist yet.
        ports: What the container publishes, on this or another of its networks.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    sandbox_key: str
    ports: tuple[PortRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExternalConnectivity:
    """A ProgramExternalConnectivity request: the endpoint becomes its container's gateway endpoint."""

    network_id: NetworkId
    endpoint_id: EndpointId
    ports: tuple[PortRequest, ...]


def parse_endpoint_reference(body: JsonObject) -> EndpointReference:
    """Return a DeleteEndpoint, EndpointOperInfo, Leave or RevokeExternalConnectivity request."""
    return EndpointReference(network_id=parse_network_id(body), endpoint_id=_endpoint_id(body))


def parse_create_network(body: JsonObject) -> CreateNetwork:
    """Return a CreateNetwork request."""
    options = find_object(body, "Options") or {}
    generic = find_object(options, _GENERIC) or {}
    try:
        pools = tuple(_parse_pool(data) for family in ("IPv4Data", "IPv6Data") for data in get_objects(body, family))
    except ValueError as exc:
        raise BadRequest(f"CreateNetwork: {exc}") from exc
    return CreateNetwork(
        network_id=parse_network_id(body),
        options={key: get_str(generic, key) for key in generic},
        internal=get_bool(options, _INTERNAL),
        ipv4=get_bool(options, _ENABLE_IPV4) if _ENABLE_IPV4 in options else None,
        ipv6=get_bool(options, _ENABLE_IPV6),
        pools=tuple(pool for pool in pools if pool.subnet not in _NULL_POOLS),
    )


def parse_create_endpoint(body: JsonObject) -> CreateEndpoint:
    """Return a CreateEndpoint request."""
    options = find_object(body, "Options") or {}
    users = [key for key in options if not key.startswith(_DOCKERS_OWN) or _is_given(key, options[key])]
    return CreateEndpoint(
        network_id=parse_network_id(body),
        endpoint_id=_endpoint_id(body),
        requested=_parse_requested(find_object(body, "Interface") or {}, find_str(options, _MAC)),
        options={key: get_str(options, key) for key in users},
        has_ports=bool(get_objects(options, _PORT_MAP)),
        name_servers=get_strings(options, _NAME_SERVERS) if isinstance(options.get(_NAME_SERVERS), list) else (),
    )


def _is_given(key: str, value: JsonValue) -> bool:
    """Return whether the user gave an option of Docker's with `driver-opt`: its value is then a text."""
    return isinstance(value, str) and key not in _ADDED_BY_DOCKER


def parse_join(body: JsonObject) -> Join:
    """Return a Join request."""
    return Join(
        network_id=parse_network_id(body),
        endpoint_id=_endpoint_id(body),
        sandbox_key=get_str(body, "SandboxKey"),
        ports=_parse_ports(find_object(body, "Options") or {}, "Join"),
    )


def parse_external_connectivity(body: JsonObject) -> ProgramExternalConnectivity:
    """Return a ProgramExternalConnectivity request."""
    ports = _parse_ports(find_object(body, "Options") or {}, "ProgramExternalConnectivity")
    return ProgramExternalConnectivity(network_id=parse_network_id(body), endpoint_id=_endpoint_id(body), ports=ports)


def _parse_ports(options: JsonObject, call: str) -> tuple[PortRequest, ...]:
    try:
        return tuple(map(_parse_port, get_objects(options, _PORT_MAP)))
    except ValueError as exc:
        raise BadRequest(f"{call}: {_PORT_MAP}: {exc}") from exc


def parse_network_id(body: JsonObject) -> NetworkId:
    """Return the network of a request; all that DeleteNetwork has."""
    return NetworkId(get_str(body, "NetworkID"))


def _endpoint_id(body: JsonObject) -> EndpointId:
    return EndpointId(get_str(body, "EndpointID"))


def _parse_pool(data: JsonObject) -> PoolRecord:
    gateway = find_str(data, "Gateway")
    return PoolRecord(
        subnet=ip_network(get_str(data, "Pool"), strict=False),
        gateway=ip_interface(gateway).ip if gateway else None,
        is_own=find_str(data, "AddressSpace") in OWN_SPACES,
    )


def _parse_port(item: JsonObject) -> PortRequest:
    host_ip, first = find_str(item, "HostIP"), find_int(item, "HostPort") or 0
    return PortRequest(
        protocol=get_int(item, "Proto"),
        container_port=get_int(item, "Port"),
        host_ip=ip_address(host_ip) if host_ip else None,
        host_port=first,
        host_port_end=max(first, find_int(item, "HostPortEnd") or 0),
    )


def _parse_requested(interface: JsonObject, encoded_mac: str | None) -> RequestedInterface:
    """Return the values that Docker chose. The MAC among the options is a Go byte slice, which is base64 in JSON."""
    address, address_ipv6 = find_str(interface, "Address"), find_str(interface, "AddressIPv6")
    try:
        mac = find_str(interface, "MacAddress") or (encoded_mac and _decode_mac(encoded_mac))
        return RequestedInterface(
            address=IPv4Interface(address) if address else None,
            address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
            mac=mac or None,
        )
    except ValueError as exc:
        raise BadRequest(f"CreateEndpoint: Interface: {exc}") from exc


def _decode_mac(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).hex(":")
    except binascii.Error as exc:
        raise ValueError(f"{_MAC}: {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenInterface:
    """The reply to CreateEndpoint: the values that Docker did not choose.

    A value that Docker has chosen must be None: libnetwork fails the call even if the reply repeats the same value.
    """

    address: IPv4Interface | None
    address_ipv6: IPv6Interface | None
    mac: str | None


class RouteType(IntEnum):
    """moby `types.RouteType`."""

    NEXT_HOP = 0
    CONNECTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticRoute:
    """A route that libnetwork programs in the sandbox; a connected route if it has no next hop."""

    destination: IPv4Network | IPv6Network
    next_hop: IPv4Address | IPv6Address | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The reply to Join.

    Attributes:
        link: Name of the link in the host namespace that libnetwork moves into the sandbox; None if it moves none,
            because the link is in the sandbox already.
        prefix: Prefix of its name in the sandbox, to which libnetwork appends a number; must not be empty.
        routes: All other routes; those that others depend on come first.
    """

    link: str | None
    prefix: str
    gateway: IPv4Address | None
    gateway_ipv6: IPv6Address | None
    routes: tuple[StaticRoute, ...]


def render_interface(reply: ChosenInterface) -> JsonObject:
    """Return the reply to CreateEndpoint, e.g. `{"Interface": {"Address": "10.22.0.2/16", "MacAddress": "2e:…"}}`."""
    values = {"Address": reply.address, "AddressIPv6": reply.address_ipv6, "MacAddress": reply.mac}
    return {"Interface": {key: str(value) for key, value in values.items() if value}}


def render_joined(reply: Joined) -> JsonObject:
    """Return the reply to Join.

    `DisableGatewayService` is always set: without it Docker attaches a container whose networks have no gateway to a
    bridge of its own.
    """
    gateways = {"Gateway": reply.gateway, "GatewayIPv6": reply.gateway_ipv6}
    moved: JsonObject = {"InterfaceName": {"SrcName": reply.link, "DstPrefix": reply.prefix}} if reply.link else {}
    return {
        **moved,
        **{key: str(value) for key, value in gateways.items() if value},
        "StaticRoutes": [_render_route(route) for route in reply.routes],
        "DisableGatewayService": True,
    }


def _render_route(route: StaticRoute) -> JsonObject:
    destination = str(route.destination)
    if route.next_hop is None:
        return {"Destination": destination, "RouteType": RouteType.CONNECTED.value}
    return {"Destination": destination, "RouteType": RouteType.NEXT_HOP.value, "NextHop": str(route.next_hop)}
