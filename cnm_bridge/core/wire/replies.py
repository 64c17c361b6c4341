# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""NetworkDriver replies with content; pure.

Source: moby `daemon/libnetwork/drivers/remote/api/api.go`, `endpoint_info.go`.
"""

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

from cni_bridge_spec import JsonObject


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
        gateway: Next hop of the IPv4 default route.
        gateway_ipv6: Next hop of the IPv6 default route.
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
