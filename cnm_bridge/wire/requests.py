# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""NetworkDriver requests as records; pure.

The shapes are those of moby `daemon/libnetwork/drivers/remote/api/api.go`; `spec/cnm/*.json` has checked them before
they come here, so that only the meaning of strings is left to check.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from typing import Final

from cnm_bridge.errors import BadRequest
from spec import JsonObject, find_object, find_str, get_bool, get_list, get_objects, get_str
from state import EndpointId, NetworkId, RequestedInterface

__all__ = [
    "CreateEndpoint",
    "CreateNetwork",
    "EndpointReference",
    "Join",
    "NetworkReference",
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
_DOCKERS_OWN: Final = "com.docker.network."


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReference:
    """A call about a network."""

    network_id: NetworkId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNetwork:
    """A network to be made.

    Attributes:
        network_id: Docker's ID. Its name is not told.
        options: What the user gave with `-o`.
        internal: Made with `--internal`.
        pools: The address pools of Docker's IPAM driver, both families, as CIDR texts.
    """

    network_id: NetworkId
    options: Mapping[str, str]
    internal: bool
    pools: tuple[str, ...]


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
        options: The keys the user gave with `driver-opt`.
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
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    sandbox_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExternalConnectivity:
    """An endpoint that becomes its container's way to the outside.

    Attributes:
        network_id: Its network.
        endpoint_id: Docker's ID.
        publishes_ports: Whether ports are to be published with `-p` or `-P`.
    """

    network_id: NetworkId
    endpoint_id: EndpointId
    publishes_ports: bool


def parse_network_reference(body: JsonObject) -> NetworkReference:
    """Return DeleteNetwork's request."""
    return NetworkReference(network_id=_network_id(body))


def parse_endpoint_reference(body: JsonObject) -> EndpointReference:
    """Return the request of DeleteEndpoint, EndpointOperInfo and Leave."""
    return EndpointReference(network_id=_network_id(body), endpoint_id=_endpoint_id(body))


def parse_create_network(body: JsonObject) -> CreateNetwork:
    """Return CreateNetwork's request."""
    options = find_object(body, "Options") or {}
    generic = find_object(options, _GENERIC) or {}
    return CreateNetwork(
        network_id=_network_id(body),
        options={key: get_str(generic, key) for key in generic},
        internal=get_bool(options, _INTERNAL),
        pools=tuple(get_str(data, "Pool") for family in ("IPv4Data", "IPv6Data") for data in get_objects(body, family)),
    )


def parse_create_endpoint(body: JsonObject) -> CreateEndpoint:
    """Return CreateEndpoint's request.

    Raises:
        BadRequest: An address is none.
    """
    options = find_object(body, "Options") or {}
    users = [key for key in options if not key.startswith(_DOCKERS_OWN)]
    return CreateEndpoint(
        network_id=_network_id(body),
        endpoint_id=_endpoint_id(body),
        requested=_parse_requested(find_object(body, "Interface") or {}),
        options={key: get_str(options, key) for key in users},
    )


def parse_join(body: JsonObject) -> Join:
    """Return Join's request."""
    return Join(
        network_id=_network_id(body),
        endpoint_id=_endpoint_id(body),
        sandbox_key=get_str(body, "SandboxKey"),
    )


def parse_external_connectivity(body: JsonObject) -> ProgramExternalConnectivity:
    """Return ProgramExternalConnectivity's request."""
    return ProgramExternalConnectivity(
        network_id=_network_id(body),
        endpoint_id=_endpoint_id(body),
        publishes_ports=bool(get_list(find_object(body, "Options") or {}, _PORT_MAP)),
    )


def _network_id(body: JsonObject) -> NetworkId:
    return NetworkId(get_str(body, "NetworkID"))


def _endpoint_id(body: JsonObject) -> EndpointId:
    return EndpointId(get_str(body, "EndpointID"))


def _parse_requested(interface: JsonObject) -> RequestedInterface:
    address, address_ipv6 = find_str(interface, "Address"), find_str(interface, "AddressIPv6")
    try:
        return RequestedInterface(
            address=IPv4Interface(address) if address else None,
            address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
            mac=find_str(interface, "MacAddress") or None,
        )
    except ValueError as exc:
        raise BadRequest(f"CreateEndpoint: Interface: {exc}") from exc
