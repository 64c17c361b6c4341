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
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_network
from typing import Final, TypeVar

from cnm_bridge.errors import Refused
from cnm_bridge.kernel import MAIN_TABLE, SCOPE_LINK, UNICAST, IpAddress, IpInterface, IpNetwork, Route, Snapshot
from cnm_bridge.wire import ChosenInterface, Joined, StaticRoute
from state import RequestedInterface

__all__ = ["choose_interface", "describe_join", "given_addresses", "not_carried_over", "refuse_inexpressible"]

A = TypeVar("A", IPv4Interface, IPv6Interface)

_DEFAULT_IPV4: Final = IPv4Network("0.0.0.0/0")
_DEFAULT_IPV6: Final = IPv6Network("::/0")
_IPV6_LINK_LOCAL: Final = IPv6Network("fe80::/64")

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
    implied = _implied(snapshot)
    routes = _chosen_routes(snapshot, internal=internal)
    hops = {route.destination: route.gateway for route in routes if route.gateway is not None}
    connected = tuple(route.destination for route in routes if route.gateway is None)
    reached = (*implied, *connected)
    missing = dict.fromkeys(ip_network(hop) for hop in hops.values() if not _is_reached(hop, reached))
    gateway, gateway_ipv6 = hops.pop(_DEFAULT_IPV4, None), hops.pop(_DEFAULT_IPV6, None)
    return Joined(
        link=link,
        gateway=gateway if isinstance(gateway, IPv4Address) else None,
        gateway_ipv6=gateway_ipv6 if isinstance(gateway_ipv6, IPv6Address) else None,
        routes=(
            *(StaticRoute(destination=destination) for destination in (*missing, *connected)),
            *(StaticRoute(destination=destination, next_hop=hop) for destination, hop in hops.items()),
        ),
    )


def refuse_inexpressible(snapshot: Snapshot, *, internal: bool) -> None:
    """Refuse what the sandbox would lack so much that it would not work.

    Raises:
        Refused: Only IPv6 has a gateway. Before Engine 28 libnetwork shows such a gateway, and does not program it.
    """
    has_gateway = any(route.destination == _DEFAULT_IPV6 for route in _chosen_routes(snapshot, internal=internal))
    if has_gateway and _address(snapshot, IPv4Interface) is None:
        raise Refused(
            "the CNI configuration gives an IPv6 gateway and no IPv4 address; IPv6-only networks are not possible yet. "
            "Add an IPv4 range, or make the network with --internal"
        )


def not_carried_over(snapshot: Snapshot, *, internal: bool) -> tuple[str, ...]:
    """Return, in words, what the sandbox will lack: libnetwork has no way to say it."""
    kept = {address.ip for address in _addresses(snapshot)}
    chosen = _chosen_routes(snapshot, internal=internal)
    expected = set(_implied(snapshot)) | {_IPV6_LINK_LOCAL} | ({_DEFAULT_IPV4, _DEFAULT_IPV6} if internal else set())
    lost = [
        route
        for route in snapshot.routes
        if route.type == UNICAST and route not in chosen and not (_is_plain(route) and route.destination in expected)
    ]
    bent = [route for route in chosen if route.mtu or route.advmss or (route.source and route.source not in kept)]
    return (
        *(f"address {address}" for address in given_addresses(snapshot) if address.ip not in kept),
        *(f"route to {_describe(route)}" for route in lost),
        *(f"mtu, advmss or source of the route to {_describe(route)}" for route in bent),
    )


def given_addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    """Return the addresses that plugins gave, in their order."""
    given = [a.address for a in snapshot.addresses if a.scope != SCOPE_LINK and a.is_permanent]
    # The kernel lists IPv4 addresses as they were added, and IPv6 addresses the other way round.
    ipv6 = reversed([a for a in given if isinstance(a, IPv6Interface)])
    return (*(a for a in given if isinstance(a, IPv4Interface)), *ipv6)


def _address(snapshot: Snapshot, family: type[A]) -> A | None:
    """Return the first address of a family, as it is to be in the sandbox.

    Where the plugins removed the route of its prefix, the prefix becomes that of a single host: else the kernel would
    add that route again.
    """
    address = next((a for a in given_addresses(snapshot) if isinstance(a, family)), None)
    if address is None:
        return None
    on_link = any(route.destination == address.network and not route.gateway for route in _expressible(snapshot))
    return address if on_link else family(address.ip)


def _addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    chosen = (_address(snapshot, IPv4Interface), _address(snapshot, IPv6Interface))
    return tuple(address for address in chosen if address is not None)


def _implied(snapshot: Snapshot) -> tuple[IpNetwork, ...]:
    """Return the networks whose routes the kernel makes by itself, with the addresses."""
    return tuple(address.network for address in _addresses(snapshot))


def _expressible(snapshot: Snapshot) -> tuple[Route, ...]:
    """Return the routes that libnetwork could program; those of link-local addresses the kernel makes by itself."""
    return tuple(
        route
        for route in snapshot.routes
        if route.table == MAIN_TABLE
        and route.type == UNICAST
        and (route.gateway is None or route.gateway.version == route.destination.version)
        and not (route.gateway is None and route.destination == _IPV6_LINK_LOCAL)
    )


def _chosen_routes(snapshot: Snapshot, *, internal: bool) -> tuple[Route, ...]:
    """Return the routes that Join tells, default routes included: to each destination the preferred one.

    libnetwork adds each route exclusively: a second one to a destination, also to one that an address brings along,
    fails the start of the container.
    """
    taken = set(_implied(snapshot)) | ({_DEFAULT_IPV4, _DEFAULT_IPV6} if internal else set())
    best: dict[IpNetwork, Route] = {}
    for route in sorted(_expressible(snapshot), key=_metric):
        if route.destination not in taken:
            best.setdefault(route.destination, route)
    return tuple(route for route in snapshot.routes if best.get(route.destination) is route)


def _metric(route: Route) -> int:
    return route.metric


def _is_plain(route: Route) -> bool:
    """Tell whether a route is as the kernel makes it for a prefix, or as a default route is that is left out."""
    return route.table == MAIN_TABLE and (route.gateway is None or route.destination.prefixlen == 0)


def _is_reached(hop: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Tell whether a next hop is on one of the networks that are directly reached."""
    return any(hop in network for network in networks if network.prefixlen)


def _describe(route: Route) -> str:
    via = f" via {route.gateway}" if route.gateway else ""
    return f"{route.destination}{via}, metric {route.metric}, table {route.table}"
