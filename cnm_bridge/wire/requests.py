# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""NetworkDriver requests as records; pure.

The shapes are those of moby `daemon/libnetwork/drivers/remote/api/api.go`; `spec/cnm/*.json` has checked them before
they come here, so that only the meaning of strings is left to check.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
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

from cnm_bridge.errors import BadRequest
from spec import JsonObject, JsonValue, find_int, find_object, find_str, get_bool, get_int, get_objects, get_str
from state import EndpointId, NetworkId, PoolRecord, RequestedInterface

__all__ = [
    "CreateEndpoint",
    "CreateNetwork",
    "EndpointReference",
    "Join",
    "NetworkReference",
    "PortRequest",
    "ProgramExternalConnectivity",
    "parse_create_endpoint",
    "parse_create_network",
    "parse_endpoint_reference",
    "parse_external_connectivity",
    "parse_join",
    "parse_network_reference",
]

_GENERIC: Final = "com.docker.network.generic"
_INTERNAL: Final = "com.docker.network.internal"
_PORT_MAP: Final = "com.docker.network.portmap"
_MAC: Final = "com.docker.network.endpoint.macaddress"
_ENABLE_IPV4: Final = "com.docker.network.enable_ipv4"
_ENABLE_IPV6: Final = "com.docker.network.enable_ipv6"
_DOCKERS_OWN: Final = "com.docker.network."
_TOLD: Final = frozenset({_MAC, "com.docker.network.endpoint.name"})
"""Texts among an endpoint's options that are Docker's own words, not the user's."""

_NULL_POOLS: Final = frozenset({IPv4Network("0.0.0.0/0"), IPv6Network("::/0")})
"""What Docker's null IPAM driver answers: no pool of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReference:
    """A call about a network."""

    network_id: NetworkId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNetwork:
    """A network to be made.

    Attributes:
        network_id: Docker's ID. The request does not have the name.
        options: What the user gave with `-o`.
        internal: Made with `--internal`.
        ipv4: Whether Docker gives it IPv4 addresses; None of engines before 28, which do not say.
        ipv6: Whether Docker gives it IPv6 addresses.
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
    """A call about an endpoint."""

    network_id: NetworkId
    endpoint_id: EndpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateEndpoint:
    """An endpoint to be made.

    Attributes:
        network_id: Its network.
        endpoint_id: Docker's ID.
        requested: What Docker has chosen already; it must not be answered again.
        options: What the user gave with `driver-opt`, Docker's own options among it.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    requested: RequestedInterface
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """An endpoint to be handed over to a sandbox.

    Attributes:
        network_id: Its network.
        endpoint_id: Docker's ID.
        sandbox_key: Path of the sandbox's namespace; before Engine 28 it need not exist yet.
        has_ports: Ports of the container are to be published, here or on another of its networks.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    sandbox_key: str
    has_ports: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest:
    """A port to be published, as given with `-p` or `-P`.

    Attributes:
        protocol: The IP protocol's number: 6 (tcp), 17 (udp), 132 (sctp).
        container_port: The port inside.
        host_ip: The host's address that it is published on, None for all.
        host_port: The first port on the host that will do, 0 for any.
        host_port_end: The last one.
    """

    protocol: int
    container_port: int
    host_ip: IPv4Address | IPv6Address | None
    host_port: int
    host_port_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExternalConnectivity:
    """An endpoint that becomes its container's way to the outside.

    Attributes:
        network_id: Its network.
        endpoint_id: Docker's ID.
        ports: The ports to be published.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    ports: tuple[PortRequest, ...]


def parse_network_reference(body: JsonObject) -> NetworkReference:
    """Return DeleteNetwork's request."""
    return NetworkReference(network_id=_network_id(body))


def parse_endpoint_reference(body: JsonObject) -> EndpointReference:
    """Return the request of DeleteEndpoint, EndpointOperInfo and Leave."""
    return EndpointReference(network_id=_network_id(body), endpoint_id=_endpoint_id(body))


def parse_create_network(body: JsonObject) -> CreateNetwork:
    """Return CreateNetwork's request.

    Raises:
        BadRequest: A pool or its gateway is no address.
    """
    options = find_object(body, "Options") or {}
    generic = find_object(options, _GENERIC) or {}
    try:
        pools = tuple(_parse_pool(data) for family in ("IPv4Data", "IPv6Data") for data in get_objects(body, family))
    except ValueError as exc:
        raise BadRequest(f"CreateNetwork: {exc}") from exc
    return CreateNetwork(
        network_id=_network_id(body),
        options={key: get_str(generic, key) for key in generic},
        internal=get_bool(options, _INTERNAL),
        ipv4=get_bool(options, _ENABLE_IPV4) if _ENABLE_IPV4 in options else None,
        ipv6=get_bool(options, _ENABLE_IPV6),
        pools=tuple(pool for pool in pools if pool.subnet not in _NULL_POOLS),
    )


def parse_create_endpoint(body: JsonObject) -> CreateEndpoint:
    """Return CreateEndpoint's request.

    Raises:
        BadRequest: An address is none.
    """
    options = find_object(body, "Options") or {}
    users = [key for key in options if not key.startswith(_DOCKERS_OWN) or _is_given(key, options[key])]
    return CreateEndpoint(
        network_id=_network_id(body),
        endpoint_id=_endpoint_id(body),
        requested=_parse_requested(find_object(body, "Interface") or {}, find_str(options, _MAC)),
        options={key: get_str(options, key) for key in users},
    )


def _is_given(key: str, value: JsonValue) -> bool:
    """Return whether the user gave an option of Docker's with `driver-opt`: these are texts."""
    return isinstance(value, str) and key not in _TOLD


def parse_join(body: JsonObject) -> Join:
    """Return Join's request."""
    return Join(
        network_id=_network_id(body),
        endpoint_id=_endpoint_id(body),
        sandbox_key=get_str(body, "SandboxKey"),
        has_ports=bool(get_objects(find_object(body, "Options") or {}, _PORT_MAP)),
    )


def parse_external_connectivity(body: JsonObject) -> ProgramExternalConnectivity:
    """Return ProgramExternalConnectivity's request.

    Raises:
        BadRequest: A host address is none.
    """
    options = find_object(body, "Options") or {}
    try:
        ports = tuple(map(_parse_port, get_objects(options, _PORT_MAP)))
    except ValueError as exc:
        raise BadRequest(f"ProgramExternalConnectivity: {_PORT_MAP}: {exc}") from exc
    return ProgramExternalConnectivity(network_id=_network_id(body), endpoint_id=_endpoint_id(body), ports=ports)


def _network_id(body: JsonObject) -> NetworkId:
    return NetworkId(get_str(body, "NetworkID"))


def _endpoint_id(body: JsonObject) -> EndpointId:
    return EndpointId(get_str(body, "EndpointID"))


def _parse_pool(data: JsonObject) -> PoolRecord:
    gateway = find_str(data, "Gateway")
    return PoolRecord(
        subnet=ip_network(get_str(data, "Pool"), strict=False),
        gateway=ip_interface(gateway).ip if gateway else None,
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
    """Return what Docker chose; a Go byte slice, as the MAC among the options is, is JSON's base64."""
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
