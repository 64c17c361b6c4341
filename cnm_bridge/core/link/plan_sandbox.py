# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plans what libnetwork does not set up in a sandbox (`SandboxSync` does it), and finds what is missing; pure.

libnetwork adds addresses and routes exclusively: an existing one makes the start of the container fail. So the plan has
no route that libnetwork could add later, for this endpoint or another network of the container: no default route with
libnetwork's metric in the main table.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Interface, IPv6Network
from typing import Final

from cnm_bridge.core.link.endpoint_replies import (
    DEFAULT_IPV4,
    DEFAULT_IPV6,
    DEFAULT_ROUTES,
    chosen_routes,
    describe_join,
    further_addresses,
    given_addresses,
    is_added_by_kernel,
    is_prefix_route_of,
    leads_to_itself,
    prefix_route,
    reported_addresses,
    without_prefix_route,
)
from cnm_bridge.core.link_state import (
    IPV6_LINK_LOCAL,
    MAIN_TABLE,
    NO_PREFIX_ROUTE,
    SCOPE_GLOBAL,
    SCOPE_LINK,
    UNICAST,
    UNKNOWN_MTU,
    Address,
    IpInterface,
    IpNetwork,
    Neighbour,
    Route,
    Rule,
    Snapshot,
    Sysctl,
)

_IPV4: Final = 4
_IPV6: Final = 6
_OF_IPV6: Final = "net/ipv6/"
_AF_INET6: Final = 10
_BOOT: Final = 3  # RTPROT_BOOT, the protocol of libnetwork's routes
_IPV6_METRIC: Final = 1024  # the kernel's default for an IPv6 route
_SECONDARY: Final = 0x01  # IFA_F_SECONDARY: an earlier address has the same prefix

_LIBNETWORK_METRICS: Final = {4: 0, 6: 1024}
"""The metrics of the default routes that libnetwork adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRoute:
    """A route that libnetwork programs with fewer attributes than the plugins did."""

    plain: Route
    replacement: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What must be changed in a sandbox.

    Attributes:
        ifname: The name of the link in staging, which rules and sysctls contain.
        addresses: Further addresses, in the order to add them.
        unwanted: Routes to remove: the kernel adds them with addresses, and the plugins left none.
        routes: Further routes; those that others depend on come first.
        replaced: Routes to replace. A default route is replaced only if libnetwork made it for this endpoint: others
            belong to other networks of the container.
        fallbacks: Default routes for a sandbox that has none of their family.
        sysctls: Settings, in the order to set them.
    """

    ifname: str
    addresses: tuple[Address, ...] = ()
    unwanted: tuple[Route, ...] = ()
    routes: tuple[Route, ...] = ()
    replaced: tuple[ReplacedRoute, ...] = ()
    fallbacks: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be changed."""
        return not self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts in words, e.g. `address 10.1.2.4/24`."""
        routes = (*self.routes, *(pair.replacement for pair in self.replaced), *self.fallbacks)
        return (
            *(f"address {address.address}" for address in self.addresses),
            *(f"no route {route}" for route in self.unwanted),
            *(f"route {route}" for route in routes),
            *map(str, (*self.rules, *self.neighbours, *self.sysctls)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The addresses of a link that libnetwork has configured, and where routes through it in the main table lead."""

    addresses: tuple[IpInterface, ...]
    destinations: tuple[IpNetwork, ...]


def is_left_to_libnetwork(route: Route, families: Collection[int]) -> bool:
    """Return whether libnetwork adds a route for the gateway endpoint, exclusively: it must not exist then.

    Other default routes stay: without a next hop, with one that is not on the link's networks, or with another metric.
    `families` are the address families (4, 6) whose gateway the reply to Join has.
    """
    version = route.destination.version
    return (
        route.destination.prefixlen == 0
        and version in families
        and route.gateway is not None
        and route.gateway.version == version
        and not route.onlink
        and (route.table, route.type, route.metric) == (MAIN_TABLE, UNICAST, _LIBNETWORK_METRICS[version])
    )


def plan_sandbox(snapshot: Snapshot, *, internal: bool) -> SandboxPlan:
    """Return what libnetwork will not set up in the sandbox.

    The default routes of all tables are left out if the network is internal. Those that lead back to the container
    always are.
    """
    chosen = frozenset(chosen_routes(snapshot, internal=internal))
    replaced, further, fallbacks = [], [], []
    has_ipv6 = uses_ipv6(snapshot)
    for route in snapshot.routes:
        is_unwanted = route.destination in DEFAULT_ROUTES and (internal or leads_to_itself(route, snapshot))
        if is_unwanted or (not has_ipv6 and _is_link_local(route)):
            continue
        plain = _as_programmed(route) if route in chosen else _as_implied(route, snapshot)
        if plain is not None:
            if plain != route:
                replaced.append(ReplacedRoute(plain=plain, replacement=route))
            if route.destination in DEFAULT_ROUTES and _is_left_out(route, snapshot):
                fallbacks.append(_with_higher_metric(route))
        elif _may_collide(route):
            fallbacks.append(_with_higher_metric(route))
        elif not is_added_by_kernel(route, snapshot):
            further.append(route)
    return SandboxPlan(
        ifname=snapshot.link.name,
        addresses=tuple(_planned(address, snapshot) for address in further_addresses(snapshot)),
        unwanted=_unwanted(snapshot),
        routes=tuple(sorted(further, key=_has_gateway)),
        replaced=tuple(sorted(replaced, key=lambda pair: _has_gateway(pair.replacement))),
        fallbacks=tuple(fallbacks),
        rules=snapshot.rules,
        neighbours=snapshot.neighbours,
        sysctls=(*_switched_on(snapshot), *snapshot.sysctls) if has_ipv6 else snapshot.sysctls,
    )


def _unwanted(snapshot: Snapshot) -> tuple[Route, ...]:
    """Return the routes that the kernel adds for the prefixes of reported addresses, and that the plugins left out."""
    bare = without_prefix_route(snapshot)
    left = {route.destination for route in snapshot.routes if route.table == MAIN_TABLE and route.gateway is None}
    return tuple(
        prefix_route(address)
        for address in reported_addresses(snapshot)
        if address in bare and address.network not in left
    )


def uses_ipv6(snapshot: Snapshot) -> bool:
    """Return whether plugins configured IPv6 beyond the kernel's automatic addresses and routes."""
    return (
        any(address.version == _IPV6 for address in given_addresses(snapshot))
        or any(address.address.version == _IPV6 for address in further_addresses(snapshot))
        or any(_is_ipv6(route) and not _is_link_local(route) for route in snapshot.routes)
        or any(neighbour.address.version == _IPV6 for neighbour in snapshot.neighbours)
    )


def _switched_on(snapshot: Snapshot) -> tuple[Sysctl, ...]:
    """Return the setting that enables IPv6 on a link; Docker disables it on a link without an IPv6 address."""
    name = f"net/ipv6/conf/{snapshot.link.name}/disable_ipv6"
    if any(address.version == _IPV6 for address in reported_addresses(snapshot)):
        return ()
    if any(sysctl.name == name for sysctl in snapshot.sysctls):
        return ()
    return (Sysctl(name=name, value="0"),)


def _is_ipv6(route: Route) -> bool:
    return _IPV6 in {route.destination.version, route.gateway.version if route.gateway else None}


def _is_link_local(route: Route) -> bool:
    """Return whether a route is the link-local one of every IPv6 link, in any table; `sbr` copies it."""
    return route.destination == IPV6_LINK_LOCAL and route.gateway is None


def describe_placement(snapshot: Snapshot, *, internal: bool, is_gateway: bool) -> Placement:
    """Return the state of the sandbox once libnetwork has configured the link, or with it the gateway endpoint."""
    joined = describe_join(snapshot, "", prefix="", internal=internal)
    gateways = (joined.gateway, joined.gateway_ipv6) if is_gateway and joined.gateway else ()
    defaults = (DEFAULT_IPV4 if isinstance(hop, IPv4Address) else DEFAULT_IPV6 for hop in gateways if hop)
    return Placement(
        addresses=reported_addresses(snapshot),
        destinations=(*(route.destination for route in joined.routes), *defaults),
    )


def _as_programmed(route: Route) -> Route:
    """Return a route of the reply to Join as libnetwork adds it."""
    is_ipv6 = isinstance(route.destination, IPv6Network)
    return replace(
        route,
        metric=_IPV6_METRIC if is_ipv6 else 0,
        scope=SCOPE_GLOBAL if is_ipv6 or route.gateway is not None else SCOPE_LINK,
        protocol=_BOOT,
        source=None,
        onlink=False,
        mtu=None,
        advmss=None,
    )


def _as_implied(route: Route, snapshot: Snapshot) -> Route | None:
    """Return the route that the kernel creates for the prefix of a reported address; None for any other route."""
    if route.table != MAIN_TABLE or route.type != UNICAST or route.gateway is not None:
        return None
    for address in reported_addresses(snapshot):
        if address.network == route.destination:
            return prefix_route(address)
    return None


def _is_left_out(route: Route, snapshot: Snapshot) -> bool:
    """Return whether libnetwork may omit a default route: before Engine 28, that of an endpoint without IPv4."""
    return isinstance(route.destination, IPv6Network) and all(
        isinstance(address, IPv6Interface) for address in reported_addresses(snapshot)
    )


def _may_collide(route: Route) -> bool:
    """Return whether a route would conflict with a default route that libnetwork adds later."""
    return (
        route.table == MAIN_TABLE
        and route.destination in DEFAULT_ROUTES
        and route.metric in {0, _IPV6_METRIC if isinstance(route.destination, IPv6Network) else 0}
    )


def _with_higher_metric(route: Route) -> Route:
    """Return a default route with a higher metric than libnetwork's, so that libnetwork's is preferred."""
    return replace(route, metric=route.metric + 1) if _may_collide(route) else route


def _planned(address: Address, snapshot: Snapshot) -> Address:
    """Return an address to add; without the route of its prefix if the plugins left none."""
    has_route = any(is_prefix_route_of(route, address) for route in snapshot.routes)
    bare = has_route or address.flags & _SECONDARY
    return address if bare else replace(address, flags=address.flags | NO_PREFIX_ROUTE)


def _has_gateway(route: Route) -> bool:
    """Sort key: routes that lead to gateways come before those that need them."""
    return route.gateway is not None


def find_differences(made: Snapshot, current: Snapshot, *, internal: bool, is_moved: bool) -> Iterator[tuple[str, str]]:
    """Yield how the sandbox differs from `made`: the kind (`link`, `address`, `route`, `rule`), and a text.

    With `is_moved`, libnetwork has configured the link, instead of the plugins.
    """
    if made.link.mac is not None and current.link.mac != made.link.mac:
        yield "link", f"its MAC is {current.link.mac}, not {made.link.mac}"
    if made.link.mtu not in {UNKNOWN_MTU, current.link.mtu}:
        yield "link", f"its MTU is {current.link.mtu}, not {made.link.mtu}"
    yield from find_missing_addresses(given_addresses(made), current)
    destinations = {(route.destination, route.gateway) for route in current.routes}
    for route in _expected(made, internal=internal, is_moved=is_moved):
        if (route.destination, route.gateway) not in destinations:
            yield "route", f"{route} is missing"
    if is_moved:
        reached = {route.destination for route in current.routes}
        placed = describe_placement(made, internal=internal, is_gateway=False).destinations
        yield from (
            ("route", f"{destination} is missing")
            for destination in placed
            if destination not in reached | DEFAULT_ROUTES
        )
    if len(current.rules) < len(made.rules):
        yield "rule", f"{len(made.rules) - len(current.rules)} policy rules are missing in the sandbox"


def find_missing_addresses(given: Iterable[IpInterface], current: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the addresses that plugins gave and that the link does not have, as `find_differences` does."""
    present = {address.ip for address in given_addresses(current)}
    yield from (("address", f"{address} is missing") for address in given if address.ip not in present)


def _expected(made: Snapshot, *, internal: bool, is_moved: bool) -> Iterator[Route]:
    """Yield the routes to find with their gateways; those that were moved may be in another table."""
    if is_moved:
        sandbox_plan = plan_sandbox(made, internal=internal)
        routes = (*sandbox_plan.routes, *(pair.replacement for pair in sandbox_plan.replaced))
    else:
        routes = made.routes
    yield from (route for route in routes if route.destination not in DEFAULT_ROUTES)


def without_ipv6(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with IPv6 disabled on the link, and nothing of IPv6, although its list gives IPv6 addresses.

    The option `com.docker.network.endpoint.sysctls` disables it on one link. `docker run --sysctl
    net.ipv6.conf.all.disable_ipv6=1` disables it on all links; Docker does not tell a driver. It enables IPv6 on a link
    of which it knows an IPv6 address (moby `libnetwork/osl/interface_linux.go`, setInterfaceIPv6), and so do plugins.
    As on Docker's own networks, such a link has no IPv6, whatever the list says.
    """
    return replace(
        snapshot,
        addresses=tuple(address for address in snapshot.addresses if address.address.version == _IPV4),
        routes=tuple(
            route
            for route in snapshot.routes
            if {route.destination.version, route.gateway.version if route.gateway else _IPV4} == {_IPV4}
        ),
        rules=tuple(rule for rule in snapshot.rules if rule.message[0] != _AF_INET6),
        neighbours=tuple(neighbour for neighbour in snapshot.neighbours if neighbour.address.version == _IPV4),
        sysctls=sysctls_without_ipv6(snapshot.link.name, snapshot.sysctls),
    )


def sysctls_without_ipv6(link: str, sysctls: Iterable[Sysctl]) -> tuple[Sysctl, ...]:
    """Return the settings of a link with IPv6 disabled, and nothing else of IPv6."""
    return (*(sysctl for sysctl in sysctls if not sysctl.name.startswith(_OF_IPV6)), _switched_off(link))


def disables_ipv6(snapshot: Snapshot) -> bool:
    """Return whether the settings of the link disable IPv6, as those of `without_ipv6` do."""
    return _switched_off(snapshot.link.name) in snapshot.sysctls


def sets_ipv6(snapshot: Snapshot) -> bool:
    """Return whether plugins or options have set anything of IPv6, such as `disable_ipv6` of the link."""
    return any(sysctl.name.startswith(_OF_IPV6) for sysctl in snapshot.sysctls)


def _switched_off(link: str) -> Sysctl:
    return Sysctl(name=f"net/ipv6/conf/{link}/disable_ipv6", value="1")
