# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The replies to CreateEndpoint and Join make Docker configure the sandbox as the plugins configured staging."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_network

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import RequestedInterface
from cnm_bridge.core.link.endpoint_replies import choose_interface, describe_join, further_addresses, given_addresses
from cnm_bridge.core.link_state import Address, LinkState, Route
from cnm_bridge.core.wire import Joined, StaticRoute, render_joined
from tests.unit.cnm_bridge.core.snapshots import BRIDGE, BRIDGE_IPV6, CALICO, LINK, PTP, address, route, snapshot

FREE = RequestedInterface()


def joined(*parts: Address | Route, internal: bool = False) -> Joined:
    """Return the reply to Join for a snapshot of these parts."""
    return describe_join(snapshot(*parts), "cnib0", prefix="eth", internal=internal)


def connected(text: str) -> StaticRoute:
    """Return a connected route."""
    return StaticRoute(destination=ip_network(text))


def test_an_address_without_its_prefix_route_has_full_length() -> None:
    """The kernel adds no route of the prefix then."""
    assert choose_interface(snapshot(*PTP), FREE).address == IPv4Interface("10.23.0.2/32")
    assert choose_interface(snapshot(*BRIDGE), FREE).address == IPv4Interface("10.22.0.2/16")


def test_onlink_gateway_gets_a_connected_route() -> None:
    """Libnetwork rejects a next hop without a route to it, so that route is added before all others."""
    reply = joined(address("10.25.0.2/32"), route("0.0.0.0/0", "192.0.2.1", onlink=True), route("10.99.0.0/16"))
    assert reply.gateway == IPv4Address("192.0.2.1")
    assert reply.routes == (connected("192.0.2.1/32"), connected("10.99.0.0/16"))


def test_a_link_local_gateway_has_a_connected_route() -> None:
    """`fe80::1` may be on every link; the route says on which."""
    reply = joined(address("fd00::2/128"), route("fe80::/64", protocol=2), route("::/0", "fe80::1", metric=1024))
    assert reply.gateway_ipv6 == IPv6Address("fe80::1")
    assert reply.routes == (connected("fe80::1/128"),)


def test_an_internal_network_has_no_gateway() -> None:
    """It has no default route either; its other routes are kept."""
    reply = joined(*BRIDGE, route("10.99.0.0/16", "10.22.0.9"), internal=True)
    assert reply.gateway is None
    assert reply.routes == (StaticRoute(destination=ip_network("10.99.0.0/16"), next_hop=ip_address("10.22.0.9")),)


def test_a_router_is_not_its_own_gateway() -> None:
    """The gateway of the list is the container itself: Docker could not reach it, and the container would not start."""
    itself = (address("10.22.0.2/16"), route("10.22.0.0/16", protocol=2), route("0.0.0.0/0", "10.22.0.2"))
    of_ipv6 = (address("fd00:22::2/64"), route("fd00:22::/64", protocol=2), route("::/0", "fd00:22::2", metric=1024))
    reply = joined(*itself, *of_ipv6, route("10.99.0.0/16", "10.22.0.2"))
    assert (reply.gateway, reply.gateway_ipv6, reply.routes) == (None, None, ())


def test_the_default_route_with_the_lowest_metric_is_the_gateway() -> None:
    """Of two default routes Docker receives the preferred one."""
    reply = joined(
        *BRIDGE[:3], route("0.0.0.0/0", "10.22.0.9", metric=200), route("0.0.0.0/0", "10.22.0.8", metric=100)
    )
    assert reply.gateway == IPv4Address("10.22.0.8")
    assert reply.routes == ()


@pytest.mark.parametrize(
    ("case", "gateways", "routes"),
    [
        ((*BRIDGE, *BRIDGE_IPV6), {"Gateway": "10.22.0.1", "GatewayIPv6": "fd00:22::1"}, []),
        (CALICO, {"Gateway": "169.254.1.1"}, [{"Destination": "169.254.1.1/32", "RouteType": 1}]),
        (
            PTP,
            {"Gateway": "10.23.0.1"},
            [
                {"Destination": "10.23.0.1/32", "RouteType": 1},
                {"Destination": "10.23.0.0/24", "RouteType": 0, "NextHop": "10.23.0.1"},
            ],
        ),
        (
            (address("10.26.0.2/32"), address("fd00:26::2/128"), route("0.0.0.0/0"), route("::/0", metric=1024)),
            {},
            [{"Destination": "0.0.0.0/0", "RouteType": 1}, {"Destination": "::/0", "RouteType": 1}],
        ),
    ],
    ids=["bridge", "calico", "ptp", "connected default routes"],
)
def test_no_default_route_has_a_next_hop(
    case: tuple[Address | Route, ...], gateways: JsonObject, routes: JsonValue
) -> None:
    """Engine 28 rejects a default route of type 0: its next hop is the gateway, and only a connected one is a route."""
    answer = render_joined(joined(*case))
    assert {key: answer[key] for key in ("Gateway", "GatewayIPv6") if key in answer} == gateways
    assert answer["StaticRoutes"] == routes


def test_values_chosen_by_docker_are_omitted() -> None:
    """Libnetwork rejects them, even if they are equal."""
    requested = RequestedInterface(
        address=IPv4Interface("10.22.0.2/16"), address_ipv6=IPv6Interface("fd00:22::2/64"), mac="02:00:00:00:00:09"
    )
    chosen = choose_interface(snapshot(*BRIDGE, *BRIDGE_IPV6), requested)
    assert (chosen.address, chosen.address_ipv6, chosen.mac) == (None, None, None)


@pytest.mark.parametrize(
    "link", [replace(LINK, kind="ipvlan"), replace(LINK, noarp=True), replace(LINK, mac=None, kind="tun")]
)
def test_a_mac_that_cannot_be_set_is_omitted(link: LinkState) -> None:
    """Docker would fail to set it, and the container would not start."""
    assert choose_interface(snapshot(*BRIDGE, link=link), FREE).mac is None


def test_addresses_from_router_advertisements_are_omitted() -> None:
    """An address with a lifetime does not come from a plugin; the sandbox will get its own."""
    assert choose_interface(snapshot(address("2001:db8::7/64", flags=0)), FREE).address_ipv6 is None


def test_the_first_address_of_the_plugins_is_chosen() -> None:
    """The kernel lists the newest IPv6 address first, so the last one listed is the first that the plugins added."""
    several = snapshot(
        address("10.22.0.2/16"), address("10.22.0.3/16"), address("fd00:22::3/64"), address("fd00:22::2/64")
    )
    chosen = choose_interface(several, FREE)
    assert chosen.address is not None
    assert chosen.address_ipv6 is not None
    assert chosen.address.ip == IPv4Address("10.22.0.2")
    assert chosen.address_ipv6.ip == IPv6Address("fd00:22::2")


def test_the_preferred_route_to_a_destination_is_chosen() -> None:
    """A second route to it would prevent the start: the others are synced later."""
    best = route("10.99.0.0/16", "10.22.0.8", metric=10)
    spare = route("10.99.0.0/16", "10.22.0.9", metric=200)
    for order in ((best, spare), (spare, best)):
        assert joined(*BRIDGE, *order).routes == (
            StaticRoute(destination=ip_network("10.99.0.0/16"), next_hop=ip_address("10.22.0.8")),
        )


def test_the_route_of_the_own_prefix_is_omitted() -> None:
    """The kernel adds it; a second one would prevent the start of the container."""
    reply = joined(*BRIDGE, route("10.22.0.0/16", "10.22.0.1", metric=200))
    assert reply.routes == ()


def test_a_deprecated_address_is_not_chosen() -> None:
    """A container is known by an address that is in use, in whatever order they are listed."""
    old, new = address("10.22.0.9/16", flags=0xA0), address("10.22.0.10/16")
    made = snapshot(old, new, *BRIDGE[1:])
    assert [str(item) for item in given_addresses(made)] == ["10.22.0.10/16", "10.22.0.9/16"]
    assert str(choose_interface(made, RequestedInterface()).address) == "10.22.0.10/16"
    assert further_addresses(made) == (old,)
