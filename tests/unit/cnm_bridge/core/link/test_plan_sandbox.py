# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is synced into the sandbox: everything that libnetwork does not add, and nothing that would conflict with it."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnm_bridge.core.link.endpoint_replies import chosen_routes, describe_join
from cnm_bridge.core.link.expected_link import DELEGATES, describe_expected
from cnm_bridge.core.link.plan_sandbox import (
    ReplacedRoute,
    SandboxPlan,
    describe_placement,
    disables_ipv6,
    find_differences,
    plan_sandbox,
    sets_ipv6,
    uses_ipv6,
    without_ipv6,
)
from cnm_bridge.core.link_state import (
    NO_PREFIX_ROUTE,
    SCOPE_LINK,
    UNKNOWN_MTU,
    Address,
    Neighbour,
    Route,
    Rule,
    Snapshot,
    Sysctl,
)
from tests.unit.cnm_bridge.core.snapshots import BRIDGE, BRIDGE_IPV6, CALICO, LINK, PTP, address, route, snapshot

ORDINARY = [BRIDGE, (*BRIDGE, *BRIDGE_IPV6), PTP, CALICO]


def planned(*parts: Address | Route, internal: bool = False) -> SandboxPlan:
    """Return the plan for a snapshot of these parts."""
    return plan_sandbox(snapshot(*parts), internal=internal)


@pytest.mark.parametrize("case", ORDINARY)
@pytest.mark.parametrize("internal", [False, True])
def test_common_plugins_need_no_sync(case: tuple[Address | Route, ...], *, internal: bool) -> None:
    """Libnetwork adds everything that they make, except for the gateway of an internal network."""
    assert planned(*case, internal=internal).is_empty


def test_further_addresses_are_synced() -> None:
    """These are all but the first of each family, in order; addresses of the kernel and of routers are omitted."""
    second, third = address("10.22.0.3/16", flags=0x81), address("10.50.0.1/24")
    plan = planned(
        *BRIDGE[:1],
        second,
        third,
        *BRIDGE[1:],
        route("10.50.0.0/24", protocol=2, source="10.50.0.1"),
        address("2001:db8::7/64", flags=0),
        address("fd00:22::9/64"),
        address("fd00:22::3/64"),
        *BRIDGE_IPV6,
        address("fe80::aa/64", scope=SCOPE_LINK),
    )
    assert [str(item.address) for item in plan.addresses] == [
        "10.22.0.3/16",
        "10.50.0.1/24",
        "fe80::aa/64",
        "fd00:22::3/64",
        "fd00:22::9/64",
    ]
    assert plan.routes == ()
    assert plan.addresses[0] == second
    assert plan.addresses[1] == third


BEYOND = route("10.99.0.0/16", "192.0.2.1", onlink=True)
AWAY, ONTO = route("0.0.0.0/0", "10.22.0.1", table=100), route("10.22.0.0/16", table=100)
SPARE, NEAR = route("10.99.0.0/16", "10.22.0.9", metric=200), route("10.99.0.0/16", "10.22.0.8")
OTHER = route("10.97.0.0/16", "fe80::9")
OWN = route("10.99.0.0/16", "10.22.0.2")
BARE_BRIDGE = BRIDGE[:3]


@pytest.mark.parametrize(
    ("parts", "internal", "routes", "fallbacks"),
    [
        # Join can add a route to the gateway only
        ((*BRIDGE, BEYOND), False, (BEYOND,), ()),
        # other tables, other metrics, or next hops of the other family; routes to next hops come first
        ((*BRIDGE, AWAY, ONTO, NEAR, SPARE, OTHER), False, (ONTO, AWAY, SPARE, OTHER), ()),
        # before Engine 28 libnetwork reports the gateway of IPv6 alone and adds no route: another metric
        (BRIDGE_IPV6, False, (), (route("::/0", "fd00:22::1", metric=1025),)),
        (BRIDGE_IPV6, True, (), ()),
        # a default route through the other family must not conflict with the gateway of another network
        ((*BARE_BRIDGE, route("0.0.0.0/0", "fe80::1")), False, (), (route("0.0.0.0/0", "fe80::1", metric=1),)),
        # one to the container itself leads nowhere; a route to another network is as the plugins made it
        ((*BARE_BRIDGE, route("0.0.0.0/0", "10.22.0.2"), OWN), False, (OWN,), ()),
        # an internal network has no default route in any table, with any metric
        ((*BRIDGE, AWAY, route("0.0.0.0/0", "10.22.0.1", metric=9), ONTO), True, (ONTO,), ()),
    ],
)
def test_further_routes_are_synced(
    parts: tuple[Address | Route, ...], internal: bool, routes: tuple[Route, ...], fallbacks: tuple[Route, ...]
) -> None:
    """They are those that libnetwork does not add; a default route may get another metric."""
    plan = planned(*parts, internal=internal)
    assert (plan.routes, plan.fallbacks, plan.replaced) == (routes, fallbacks, ())
    assert plan.is_empty is not bool(routes or fallbacks)
    assert not {*routes} & {*chosen_routes(snapshot(*parts), internal=internal)}


@pytest.mark.parametrize(
    "wanted",
    [
        route("10.99.0.0/16", "10.22.0.9", mtu=1400),
        route("10.99.0.0/16", "10.22.0.9", advmss=1200),
        route("10.99.0.0/16", "10.22.0.9", metric=7),
        route("10.99.0.0/16", "10.22.0.9", source="10.22.0.2"),
        route("10.99.0.0/16", "10.22.0.9", onlink=True),
        route("10.99.0.0/16", "10.22.0.9", protocol=4),
    ],
)
def test_routes_with_attributes_are_replaced(wanted: Route) -> None:
    """The reply to Join has them without attributes, so that they exist from the start; then they are replaced."""
    plain = route("10.99.0.0/16", "10.22.0.9")
    plan = planned(*BRIDGE, wanted)
    assert plan.replaced == (ReplacedRoute(plain=plain, replacement=wanted),)
    assert plan.routes == ()


def test_connected_routes_with_attributes_are_replaced() -> None:
    """Libnetwork's route has link scope; in IPv6 there is no scope, and the metric is 1024."""
    ipv4, ipv6 = route("10.99.0.0/16", mtu=1400), route("fd99::/64", scope=0, metric=1024, mtu=1400)
    plan = planned(*BRIDGE, *BRIDGE_IPV6, ipv4, ipv6)
    assert plan.replaced == (
        ReplacedRoute(plain=route("10.99.0.0/16"), replacement=ipv4),
        ReplacedRoute(plain=route("fd99::/64", scope=0, metric=1024), replacement=ipv6),
    )


BARE = replace(PTP[0], flags=0x80 | NO_PREFIX_ROUTE)
"""An address that Docker configures with its prefix, although `ptp` removed the prefix's route."""


def test_the_prefix_route_of_an_address_that_has_none_is_removed() -> None:
    """The kernel adds it with the address; that of `ptp`, which the reply to Join cannot have beside it, follows."""
    plan = planned(BARE, *PTP[1:])
    assert plan.unwanted == (route("10.23.0.0/24", protocol=2, source="10.23.0.2"),)
    assert plan.routes == (route("10.23.0.0/24", "10.23.0.1"),)
    assert plan.parts == (f"no route {plan.unwanted[0]}", f"route {plan.routes[0]}")
    reply = chosen_routes(snapshot(BARE, *PTP[1:]), internal=False)
    assert [str(item.destination) for item in reply] == ["10.23.0.1/32", "0.0.0.0/0"]
    placement = describe_placement(snapshot(BARE, *PTP[1:]), internal=False, is_gateway=False)
    assert placement.addresses == (ip_interface("10.23.0.2/24"),)


def test_the_ipv6_prefix_route_of_an_address_that_has_none_is_removed() -> None:
    """The metric of the kernel's route is lower, so it would be used instead of that of `ptp`."""
    mine = route("fd00:23::/64", "fd00:23::1", metric=1024)
    bare = replace(address("fd00:23::2/64"), flags=0x80 | NO_PREFIX_ROUTE)
    plan = planned(bare, route("fd00:23::1/128", scope=0, metric=1024), mine)
    assert plan.unwanted == (route("fd00:23::/64", scope=0, metric=256, protocol=2),)
    assert plan.routes == (mine,)


def test_a_prefix_route_that_the_plugins_left_is_not_removed() -> None:
    """They may have made it themselves, or it belongs to another address of the prefix."""
    mine = route("10.23.0.0/24", protocol=2, source="10.23.0.2")
    assert not planned(BARE, mine).unwanted
    further = replace(address("10.22.0.3/16", flags=0x81), flags=0x81 | NO_PREFIX_ROUTE)
    assert not planned(*BRIDGE, further).unwanted
    assert not planned(*PTP).unwanted


def test_everything_else_is_synced_unchanged() -> None:
    """Libnetwork adds no rules, neighbours, or sysctls."""
    rest = replace(
        snapshot(*BRIDGE),
        rules=(Rule(priority=9, table=100, message=b"..."),),
        neighbours=(Neighbour(address=ip_address("10.22.0.7"), mac="02:00:00:00:00:07", proxy=False),),
        sysctls=(Sysctl(name="net/core/somaxconn", value="9"),),
    )
    plan = plan_sandbox(rest, internal=False)
    assert (plan.rules, plan.neighbours, plan.sysctls) == (rest.rules, rest.neighbours, rest.sysctls)
    assert plan.parts == ("rule 9 to table 100", "neighbour 10.22.0.7", "sysctl net.core.somaxconn")


@pytest.mark.parametrize(("is_gateway", "defaults"), [(True, {"0.0.0.0/0", "::/0"}), (False, set())])
def test_the_configuration_by_libnetwork_is_complete(*, is_gateway: bool, defaults: set[str]) -> None:
    """It is complete when everything in the replies exists; default routes exist only if the network is the gateway."""
    found = describe_placement(
        snapshot(*BRIDGE, *BRIDGE_IPV6, route("10.99.0.0/16", "10.22.0.9")), internal=False, is_gateway=is_gateway
    )
    assert found.addresses == (ip_interface("10.22.0.2/16"), ip_interface("fd00:22::2/64"))
    assert {str(destination) for destination in found.destinations} == {"10.99.0.0/16", *defaults}


def test_the_default_route_of_an_ipv6_only_network_is_not_expected() -> None:
    """Before Engine 28 libnetwork never adds it, so the sync must not wait for it."""
    assert describe_placement(snapshot(*BRIDGE_IPV6), internal=False, is_gateway=True).destinations == ()


ROUTES = st.builds(
    route,
    st.sampled_from(["0.0.0.0/0", "10.22.0.0/16", "10.99.0.0/16"]),
    st.sampled_from([None, "10.22.0.1", "10.22.0.9", "fe80::1"]),
    metric=st.sampled_from([0, 1, 100]),
    table=st.sampled_from([254, 100]),
    mtu=st.sampled_from([None, 1400]),
    protocol=st.sampled_from([2, 3, 4]),
)


@given(st.lists(ROUTES, max_size=6), st.booleans())
def test_no_route_is_lost_or_conflicts(routes: list[Route], internal: bool) -> None:
    """Each route is in the reply, synced, added by the kernel, or a default route of an internal network."""
    parts = snapshot(BRIDGE[0], *routes)
    plan = plan_sandbox(parts, internal=internal)
    in_reply = chosen_routes(parts, internal=internal)
    synced = {*plan.routes, *(pair.replacement for pair in plan.replaced)}
    fallbacks = {replace(item, metric=0) for item in plan.fallbacks}
    for item in parts.routes:
        by_kernel = item.protocol == 2 and item.table == 254 and item.gateway is None
        left_out = internal and item.destination.prefixlen == 0
        assert item in in_reply or item in synced or replace(item, metric=0) in fallbacks or by_kernel or left_out, item
    default = ip_network("0.0.0.0/0")
    for item in (*plan.routes, *plan.fallbacks):
        assert (item.destination, item.table, item.metric) != (default, 254, 0)


LINK_LOCAL = route("fe80::/64", scope=0, metric=256, table=100, protocol=3)


def test_link_local_routes_are_not_synced_without_ipv6() -> None:
    """`sbr` copies such a route into its table; without IPv6 adding it would fail, and it is not needed."""
    assert planned(*BRIDGE, LINK_LOCAL).is_empty
    assert planned(*BRIDGE, *BRIDGE_IPV6, LINK_LOCAL).routes == (LINK_LOCAL,)


def test_the_address_of_a_former_mac_is_not_synced() -> None:
    """The kernel made it before `tuning` set the MAC; without other IPv6 it does not enable IPv6."""
    former = address("fe80::a0f8:78ff:fefc:93ad/64", scope=SCOPE_LINK)
    assert planned(*BRIDGE, former).is_empty
    assert planned(*BRIDGE, *BRIDGE_IPV6, former).addresses == ()


@pytest.mark.parametrize(
    "part",
    [
        address("fe80::77/64", scope=SCOPE_LINK),
        route("10.97.0.0/16", "fe80::9"),
        route("fd99::/64", "fe80::9", scope=0, metric=1024),
    ],
)
def test_ipv6_is_enabled_if_the_plugins_used_it(part: Address | Route) -> None:
    """Docker disables IPv6 in a sandbox for whose link it receives no IPv6 address."""
    on = Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value="0")
    assert planned(*BRIDGE, part).sysctls == (on,)
    assert planned(*BRIDGE, *BRIDGE_IPV6, part).sysctls == ()


def test_a_changed_prefix_route_is_synced() -> None:
    """The address is added without it, then the route as captured; with the address's own metric the kernel adds it."""
    added = address("10.50.0.1/24")
    changed = route("10.50.0.0/24", protocol=2, source="10.50.0.1", mtu=1300)
    bare = (replace(added, flags=added.flags | NO_PREFIX_ROUTE),)
    assert planned(*BRIDGE, added).addresses == bare
    plan = planned(*BRIDGE, added, changed)
    assert plan.addresses == bare
    assert [pair.replacement for pair in plan.replaced] == [changed]
    with_metric = replace(added, metric=50)
    plan = planned(*BRIDGE, with_metric, replace(changed, mtu=None, metric=50))
    assert plan.addresses == (with_metric,)
    assert (plan.routes, plan.replaced) == ((), ())


MADE = snapshot(*BRIDGE, route("192.0.2.0/24", "10.22.0.9"))


def differences(found: Snapshot, *, is_moved: bool = True) -> list[tuple[str, str]]:
    """Return what is found of a link that plugins left as `MADE`."""
    return list(find_differences(MADE, found, internal=False, is_moved=is_moved))


@pytest.mark.parametrize("is_moved", [True, False])
def test_an_untouched_link_has_no_difference(is_moved: bool) -> None:
    """Also without its default route, which Docker keeps on one network only, and with further addresses."""
    routes = tuple(one for one in MADE.routes if one.destination.prefixlen)
    assert differences(MADE, is_moved=is_moved) == []
    further = (*MADE.addresses, address("10.22.0.7/16"))
    assert differences(replace(MADE, routes=routes, addresses=further), is_moved=is_moved) == []


def test_a_link_that_was_foreseen() -> None:
    """A record may have only that, if a later one was lost: the link's MTU is not known then."""
    foreseen = replace(MADE, link=replace(LINK, mtu=UNKNOWN_MTU))
    assert list(find_differences(foreseen, MADE, internal=False, is_moved=False)) == []


@pytest.mark.parametrize(
    ("found", "about", "what"),
    [
        (replace(MADE, link=replace(LINK, mtu=1400)), "link", "its MTU is 1400, not 1500"),
        (replace(MADE, link=replace(LINK, mac="02:00:00:00:00:09")), "link", "its MAC is 02:00:00:00:00:09"),
        (replace(MADE, addresses=()), "address", "10.22.0.2/16 is missing"),
        (replace(MADE, routes=MADE.routes[:3]), "route", "192.0.2.0/24"),
    ],
)
@pytest.mark.parametrize("is_moved", [True, False])
def test_a_difference_is_named(found: Snapshot, about: str, what: str, is_moved: bool) -> None:
    """With its kind, and with what it is."""
    assert [(one, what in text) for one, text in differences(found, is_moved=is_moved)] == [(about, True)]


def dual_stack() -> Snapshot:
    """Return a link with addresses and settings of both families."""
    addresses = [ip_interface("10.1.0.2/24"), ip_interface("fd00::2/64")]
    sysctls = [
        Sysctl(name="net/ipv4/conf/eth0/arp_notify", value="1"),
        Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value="0"),
    ]
    return describe_expected(DELEGATES["bridge"], "eth0", addresses, None, sysctls)


def test_what_is_left() -> None:
    """IPv4 alone: in the link's state, in the reply to Join, and in the plan for the sandbox, which disables IPv6."""
    left = without_ipv6(dual_stack())
    assert uses_ipv6(dual_stack())
    assert not uses_ipv6(left)
    assert sets_ipv6(dual_stack())
    assert [address.address for address in left.addresses] == [ip_interface("10.1.0.2/24")]
    assert [route.destination for route in left.routes] == [ip_network("10.1.0.0/24")]
    joined = describe_join(left, "link", prefix="eth", internal=False)
    assert (joined.gateway_ipv6, joined.routes) == (None, ())
    assert plan_sandbox(left, internal=False).parts == (
        "sysctl net.ipv4.conf.eth0.arp_notify",
        "sysctl net.ipv6.conf.eth0.disable_ipv6",
    )
    assert left.sysctls[-1] == Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value="1")
    assert (disables_ipv6(left), disables_ipv6(dual_stack())) == (True, False)
    assert without_ipv6(left) == left  # the container may be connected again with the same record
