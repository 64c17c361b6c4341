# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker is told of a link, so that the sandbox becomes what the plugins made of the staging namespace; pure.

A link that moves keeps its MAC and MTU and loses addresses and routes. libnetwork programs in the sandbox: one address
of each family (the kernel adds the route of its prefix), connected routes, routes with a next hop, and of one endpoint
of the sandbox the default routes, in this order (moby `osl/interface_linux.go`, `osl/route_linux.go`).

It all comes from the snapshot, not from the plugins' result: `ptp`, for one, reports an address with a prefix, and then
removes the prefix's route from the kernel.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, IPv6Network, ip_network
from typing import Final, TypeVar

from cnm_bridge.kernel import MAIN_TABLE, SCOPE_LINK, UNICAST, IpAddress, IpInterface, IpNetwork, Route, Snapshot
from cnm_bridge.wire import ChosenInterface, Joined, StaticRoute
from state import RequestedInterface

__all__ = ["choose_interface", "describe_join", "not_carried_over"]

A = TypeVar("A", IPv4Interface, IPv6Interface)
G = TypeVar("G", IPv4Address, IPv6Address)

IPV4: Final = 4
IPV6: Final = 6
IPV6_LINK_LOCAL: Final = IPv6Network("fe80::/64")

_WITHOUT_OWN_MAC: Final = frozenset({"ipvlan"})
"""Kinds that share their parent's MAC; libnetwork's attempt to set it would fail."""


def choose_interface(snapshot: Snapshot, requested: RequestedInterface) -> ChosenInterface:
    """Return what CreateEndpoint answers: the plugins' choice where Docker has made none.

    An IPv6 address is always answered if there is one: since 26.0.2 libnetwork switches IPv6 off on any interface for
    which it knows none.
    """
    link = snapshot.link
    settable = not link.noarp and link.kind not in _WITHOUT_OWN_MAC
    return ChosenInterface(
        address=None if requested.address else _address(snapshot, IPv4Interface),
        address_ipv6=None if requested.address_ipv6 else _address(snapshot, IPv6Interface),
        mac=link.mac if settable and not requested.mac else None,
    )


def describe_join(snapshot: Snapshot, link: str, *, internal: bool) -> Joined:
    """Return what Join answers.

    Args:
        snapshot: What the plugins made.
        link: Name of the link in the host namespace.
        internal: The network has no gateway: default routes are left out.
    """
    implied = {address.network for address in _addresses(snapshot)}
    routes = [route for route in _expressible(snapshot) if route.gateway or route.destination not in implied]
    if internal:
        routes = [route for route in routes if not _is_default(route)]
    gateways = [route.gateway for route in sorted(routes, key=_metric) if _is_default(route) and route.gateway]
    connected = _unique(route.destination for route in routes if route.gateway is None)
    next_hops = {
        route.destination: route.gateway for route in routes if route.gateway is not None and not _is_default(route)
    }
    gateway, gateway_ipv6 = _first(gateways, IPv4Address), _first(gateways, IPv6Address)
    needed = [hop for hop in (gateway, gateway_ipv6, *next_hops.values()) if hop is not None]
    missing = _unique(_host(hop) for hop in needed if not _is_reached(hop, (*implied, *connected)))
    return Joined(
        link=link,
        gateway=gateway,
        gateway_ipv6=gateway_ipv6,
        routes=(
            *(StaticRoute(destination=destination) for destination in (*missing, *connected)),
            *(StaticRoute(destination=destination, next_hop=hop) for destination, hop in next_hops.items()),
        ),
    )


def not_carried_over(snapshot: Snapshot) -> tuple[str, ...]:
    """Return, in words, what the sandbox will lack: libnetwork has no way to say it."""
    kept = {address.ip for address in _addresses(snapshot)}
    lost_addresses = [address for address in _global_addresses(snapshot) if address.ip not in kept]
    lost_routes = [route for route in snapshot.routes if route.type == UNICAST and route.table != MAIN_TABLE]
    lost_metrics = [route for route in _expressible(snapshot) if route.mtu or route.advmss]
    return (
        *(f"address {address}" for address in lost_addresses),
        *(f"route to {route.destination} in table {route.table}" for route in lost_routes),
        *(f"mtu and advmss of the route to {route.destination}" for route in lost_metrics),
    )


def _global_addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    """Return the addresses that plugins gave, in their order."""
    given = [a.address for a in snapshot.addresses if a.scope != SCOPE_LINK and a.is_permanent]
    # The kernel lists IPv4 addresses as they were added, and IPv6 addresses the other way round.
    return (*(a for a in given if a.version == IPV4), *(a for a in reversed(given) if a.version == IPV6))


def _address(snapshot: Snapshot, family: type[A]) -> A | None:
    """Return the first address of a family, as it is to be in the sandbox.

    Where the plugins removed the route of its prefix, the prefix becomes that of a single host: else the kernel would
    add that route again.
    """
    address = next((a for a in _global_addresses(snapshot) if isinstance(a, family)), None)
    if address is None:
        return None
    on_link = any(route.destination == address.network and not route.gateway for route in _expressible(snapshot))
    return address if on_link else family(address.ip)


def _addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    chosen = (_address(snapshot, IPv4Interface), _address(snapshot, IPv6Interface))
    return tuple(address for address in chosen if address is not None)


def _expressible(snapshot: Snapshot) -> tuple[Route, ...]:
    """Return the routes that libnetwork can program; those of link-local addresses the kernel makes by itself."""
    return tuple(
        route
        for route in snapshot.routes
        if route.table == MAIN_TABLE
        and route.type == UNICAST
        and (route.gateway is None or route.gateway.version == route.destination.version)
        and not (route.gateway is None and route.destination == IPV6_LINK_LOCAL)
    )


def _is_default(route: Route) -> bool:
    return route.destination.prefixlen == 0


def _metric(route: Route) -> int:
    return route.metric


def _first(gateways: Iterable[IpAddress], family: type[G]) -> G | None:
    return next((gateway for gateway in gateways if isinstance(gateway, family)), None)


def _is_reached(hop: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Return whether a next hop is on one of the networks that are directly reached."""
    return any(hop in network for network in networks if network.prefixlen)


def _host(address: IpAddress) -> IpNetwork:
    return ip_network(address)


def _unique(networks: Iterable[IpNetwork]) -> tuple[IpNetwork, ...]:
    """Return the networks, each once: libnetwork fails on a route that exists."""
    return tuple(dict.fromkeys(networks))
