# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Replies have the form that moby decodes."""

from ipaddress import ip_address, ip_interface, ip_network

from cnm_bridge.core.wire import ChosenInterface, Joined, StaticRoute, render_interface, render_joined


def test_an_interface_has_addresses_with_prefix_length() -> None:
    """Addresses and MAC are those that the plugins chose."""
    reply = ChosenInterface(
        address=ip_interface("10.22.0.2/16"),  # type: ignore[arg-type]  # of the version that its text has
        address_ipv6=ip_interface("fd00::2/64"),  # type: ignore[arg-type]
        mac="2e:00:00:00:00:01",
    )
    assert render_interface(reply) == {
        "Interface": {"Address": "10.22.0.2/16", "AddressIPv6": "fd00::2/64", "MacAddress": "2e:00:00:00:00:01"}
    }


def test_values_chosen_by_docker_are_omitted() -> None:
    """Libnetwork rejects them, even if they are equal."""
    assert render_interface(ChosenInterface(address=None, address_ipv6=None, mac=None)) == {"Interface": {}}


def test_the_reply_to_join() -> None:
    """Gateways have their own keys; routes are connected (1) or have a next hop (0)."""
    reply = Joined(
        prefix="eth",
        link="cnib0123",
        gateway=ip_address("10.22.0.1"),  # type: ignore[arg-type]
        gateway_ipv6=ip_address("fe80::1"),  # type: ignore[arg-type]
        routes=(
            StaticRoute(destination=ip_network("fe80::1/128")),
            StaticRoute(destination=ip_network("10.9.0.0/16"), next_hop=ip_address("10.22.0.9")),
        ),
    )
    assert render_joined(reply) == {
        "InterfaceName": {"SrcName": "cnib0123", "DstPrefix": "eth"},
        "Gateway": "10.22.0.1",
        "GatewayIPv6": "fe80::1",
        "StaticRoutes": [
            {"Destination": "fe80::1/128", "RouteType": 1},
            {"Destination": "10.9.0.0/16", "RouteType": 0, "NextHop": "10.22.0.9"},
        ],
        "DisableGatewayService": True,
    }


def test_the_reply_to_join_without_a_gateway() -> None:
    """Missing gateways are omitted, and `DisableGatewayService` prevents Docker from adding its own."""
    reply = render_joined(Joined(prefix="eth", link="l", gateway=None, gateway_ipv6=None, routes=()))
    assert "Gateway" not in reply
    assert "GatewayIPv6" not in reply
    assert reply["DisableGatewayService"] is True
