# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Builds the replies to CreateEndpoint and Join, from which libnetwork recreates the staging namespace; pure.

A link that moves keeps its MAC and MTU and loses addresses and routes. libnetwork programs in the sandbox: one address
of each family (the kernel adds the route of its prefix), connected routes, routes with a next hop, and, for the gateway
endpoint, the default routes, in this order (moby `osl/interface_linux.go`, `osl/route_linux.go`).

The replies come from the snapshot, not from the plugins' result: `ptp`, for example, reports an address with a prefix
and then removes the prefix's route from the kernel.
"""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_network,
)
from typing import Final, TypeVar

from cni_bridge_state import EndpointRecord, RequestedInterface
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.link_state import (
    BY_KERNEL,
    IPV6_LINK_LOCAL,
    MAIN_TABLE,
    NO_PREFIX_ROUTE,
    SCOPE_GLOBAL,
    SCOPE_LINK,
    UNICAST,
    Address,
    IpAddress,
    IpInterface,
    IpNetwork,
    LinkState,
    Route,
    Snapshot,
)
from cnm_bridge.core.wire import ChosenInterface, Joined, StaticRoute

A = TypeVar("A", IPv4Interface, IPv6Interface)

DEFAULT_IPV4: Final = IPv4Network("0.0.0.0/0")
DEFAULT_IPV6: Final = IPv6Network("::/0")
DEFAULT_ROUTES: Final = frozenset[IpNetwork]({DEFAULT_IPV4, DEFAULT_IPV6})
_OF_MAC: Final = b"\xff\xfe"
"""The middle bytes of an interface identifier that is made of a MAC (RFC 4291, appendix A)."""

_IPV6_PREFIX_METRIC: Final = 256  # the kernel's for the route of an address's prefix

_WITHOUT_OWN_MAC: Final = frozenset({"ipvlan"})
"""Kinds of links that share their parent's MAC; libnetwork's attempt to set it would fail."""


def choose_interface(snapshot: Snapshot, requested: RequestedInterface) -> ChosenInterface:
    """Return the reply to CreateEndpoint: the plugins' values for everything that Docker has not chosen.

    The reply has an IPv6 address if the link has any, because libnetwork, since 26.0.2, disables IPv6 on an interface
    without a known IPv6 address.
    """
    link = snapshot.link
    settable = not link.noarp and link.kind not in _WITHOUT_OWN_MAC
    return ChosenInterface(
        address=None if requested.address else _address(snapshot, IPv4Interface),
        address_ipv6=None if requested.address_ipv6 else _address(snapshot, IPv6Interface),
        mac=link.mac if settable and not requested.mac else None,
    )


def describe_join(snapshot: Snapshot, link: str, *, prefix: str, internal: bool) -> Joined:
    """Return the reply to Join for a link of this name in the host namespace; without default routes if `internal`."""
    implied = _implied(snapshot)
    routes = chosen_routes(snapshot, internal=internal)
    hops = {route.destination: route.gateway for route in routes if route.gateway is not None}
    connected = tuple(route.destination for route in routes if route.gateway is None)
    reached = (*implied, *connected)
    missing = dict.fromkeys(ip_network(hop) for hop in hops.values() if not _is_reached(hop, reached))
    gateway, gateway_ipv6 = hops.pop(DEFAULT_IPV4, None), hops.pop(DEFAULT_IPV6, None)
    return Joined(
        link=link,
        prefix=prefix,
        gateway=gateway if isinstance(gateway, IPv4Address) else None,
        gateway_ipv6=gateway_ipv6 if isinstance(gateway_ipv6, IPv6Address) else None,
        routes=(
            *(StaticRoute(destination=destination) for destination in (*missing, *connected)),
            *(StaticRoute(destination=destination, next_hop=hop) for destination, hop in hops.items()),
        ),
    )


def given_addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    """Return the addresses that plugins assigned, in order, with deprecated ones last."""
    given = [a for a in snapshot.addresses if a.scope != SCOPE_LINK and a.is_permanent]
    # The kernel lists IPv4 addresses in the order in which they were added, IPv6 addresses in reverse.
    ipv4 = [a for a in given if isinstance(a.address, IPv4Interface)]
    ipv6 = reversed([a for a in given if isinstance(a.address, IPv6Interface)])
    return tuple(a.address for a in sorted((*ipv4, *ipv6), key=lambda a: (a.address.version, a.is_deprecated)))


def with_addresses(record: EndpointRecord) -> EndpointRecord:
    """Return a record with all addresses for which its plugins may have created something, on any link.

    Call it whenever result or snapshot have changed: `Store.endpoints_with_address` finds the endpoint by them.
    """
    endpoint = Endpoint(record)
    reported = endpoint.result.ips if endpoint.result else ()
    addresses = (*(ip.address.ip for ip in reported), *(address.ip for address in known_addresses(endpoint)))
    return replace(record, addresses=tuple(dict.fromkeys(map(str, addresses))))


def known_addresses(endpoint: Endpoint) -> tuple[IpInterface, ...]:
    """Return the addresses that the plugins assigned: from the snapshot, or from the result if there is no snapshot."""
    if endpoint.snapshot is not None:
        return given_addresses(endpoint.snapshot)
    return endpoint.result.addresses_of(endpoint.record.attachment.ifname) if endpoint.result else ()


def _address(snapshot: Snapshot, family: type[A]) -> A | None:
    """Return the first address of a family, as the sandbox must have it.

    If the plugins removed the route of its prefix, it is returned with a host prefix (/32 or /128); otherwise the
    kernel would add that route again. With NO_PREFIX_ROUTE the sandbox sync removes that route.
    """
    address = next((a for a in given_addresses(snapshot) if isinstance(a, family)), None)
    if address is None:
        return None
    on_link = any(route.destination == address.network and not route.gateway for route in _expressible(snapshot))
    return address if on_link or address in without_prefix_route(snapshot) else family(address.ip)


def without_prefix_route(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    """Return the addresses without the route of their prefix (IFA_F_NOPREFIXROUTE)."""
    return tuple(address.address for address in snapshot.addresses if address.flags & NO_PREFIX_ROUTE)


def reported_addresses(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    """Return the addresses in the reply to CreateEndpoint, at most one per family."""
    chosen = (_address(snapshot, IPv4Interface), _address(snapshot, IPv6Interface))
    return tuple(address for address in chosen if address is not None)


def _implied(snapshot: Snapshot) -> tuple[IpNetwork, ...]:
    """Return the networks whose routes the kernel adds with the addresses."""
    return tuple(address.network for address in reported_addresses(snapshot))


def _expressible(snapshot: Snapshot) -> tuple[Route, ...]:
    """Return the routes that libnetwork can program, without those that the kernel adds with an address."""
    return tuple(
        route
        for route in snapshot.routes
        if route.table == MAIN_TABLE
        and route.type == UNICAST
        and (route.gateway is None or route.gateway.version == route.destination.version)
        and not is_added_by_kernel(route, snapshot)
        and not leads_to_itself(route, snapshot)
    )


def leads_to_itself(route: Route, snapshot: Snapshot) -> bool:
    """Return whether the next hop of a route is an address of the link: the container is that router.

    libnetwork looks for the link that leads to a next hop, and here finds `lo`, so that the container would not start.
    """
    return any(address.address.ip == route.gateway for address in snapshot.addresses)


def chosen_routes(snapshot: Snapshot, *, internal: bool) -> tuple[Route, ...]:
    """Return the routes in the reply to Join, including default routes: the preferred one to each destination.

    libnetwork adds each route exclusively: a second one to a destination, including that of an address's prefix, makes
    the start of the container fail. So does a next hop that is not reachable. For the next hop of a default route Join
    adds a route; other such routes are left to the sandbox sync.
    """
    taken = {*_implied(snapshot), *(DEFAULT_ROUTES if internal else ())}
    best: dict[IpNetwork, Route] = {}
    for route in sorted(_expressible(snapshot), key=lambda route: route.metric):
        if route.destination not in taken:
            best.setdefault(route.destination, route)
    hops = (best[default].gateway for default in DEFAULT_ROUTES if default in best)
    connected = (route.destination for route in best.values() if route.gateway is None)
    reached = (*_implied(snapshot), *connected, *(ip_network(hop) for hop in hops if hop is not None))
    return tuple(
        route
        for route in snapshot.routes
        if best.get(route.destination) is route and (route.gateway is None or _is_reached(route.gateway, reached))
    )


def _is_reached(hop: IpAddress, networks: Iterable[IpNetwork]) -> bool:
    """Return whether a next hop is on a directly connected network."""
    return any(hop in network for network in networks if network.prefixlen)


def is_added_by_kernel(route: Route, snapshot: Snapshot) -> bool:
    """Return whether the kernel adds a route with an address that Docker does not receive."""
    if route.table != MAIN_TABLE or route.gateway is not None:
        return False
    if route.destination == IPV6_LINK_LOCAL:
        return True
    if any(address.network == route.destination for address in _first_of_each_family(snapshot)):
        return False  # Docker receives an address with the same prefix
    return any(is_prefix_route_of(route, address) for address in further_addresses(snapshot))


def prefix_route(address: IpInterface) -> Route:
    """Return the route that the kernel adds for the prefix of an address."""
    is_ipv6 = isinstance(address, IPv6Interface)
    return Route(
        destination=address.network,
        gateway=None,
        table=MAIN_TABLE,
        metric=_IPV6_PREFIX_METRIC if is_ipv6 else 0,
        type=UNICAST,
        scope=SCOPE_GLOBAL if is_ipv6 else SCOPE_LINK,
        protocol=BY_KERNEL,
        source=None if is_ipv6 else address.ip,
        onlink=False,
        mtu=None,
        advmss=None,
    )


def is_prefix_route_of(route: Route, address: Address) -> bool:
    """Return whether a route equals the one that the kernel adds for an address's prefix; it may have been changed."""
    metric = address.metric or (0 if isinstance(route.destination, IPv4Network) else _IPV6_PREFIX_METRIC)
    return (route.destination, route.protocol, route.metric) == (address.prefix, BY_KERNEL, metric) and (
        route.mtu is None and route.advmss is None
    )


def further_addresses(snapshot: Snapshot) -> tuple[Address, ...]:
    """Return the addresses that plugins assigned and Docker does not receive, in the order to add them."""
    sent = {address.ip for address in _first_of_each_family(snapshot)}
    given = [
        address
        for address in snapshot.addresses
        if address.is_permanent and address.address.ip not in sent and not is_automatic(address, snapshot.link)
    ]
    # the kernel lists the latest IPv6 address first
    ipv6 = [address for address in given if isinstance(address.address, IPv6Interface)]
    return (*(address for address in given if address not in ipv6), *reversed(ipv6))


def _first_of_each_family(snapshot: Snapshot) -> tuple[IpInterface, ...]:
    first: dict[int, IpInterface] = {}
    for address in given_addresses(snapshot):
        first.setdefault(address.version, address)
    return tuple(first.values())


def is_automatic(address: Address, link: LinkState) -> bool:
    """Return whether an address is a link-local one that the kernel derives from the MAC, or from a former MAC."""
    if address.address.network != IPV6_LINK_LOCAL:
        return False
    return link.mac is None or address.address.packed[11:13] == _OF_MAC
