# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What busybox and iproute2 print is understood."""

from ipaddress import ip_address

from cnm_bridge.operator.connectivity.probe import parse_addresses, parse_gateways, parse_mtu

LINKS = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
    inet6 ::1/128 scope host
2: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1450 qdisc noqueue
    link/ether 02:42:0a:16:00:02 brd ff:ff:ff:ff:ff:ff
    inet 10.22.0.2/16 brd 10.22.255.255 scope global eth0
    inet6 fe80::42:aff:fe16:2/64 scope link
    inet6 fd22::2/64 scope global flags 02
"""


def test_addresses_and_mtu() -> None:
    """Neither those of lo nor link-local ones."""
    assert parse_addresses(LINKS) == (ip_address("10.22.0.2"), ip_address("fd22::2"))
    assert parse_mtu(LINKS) == 1450
    assert parse_mtu("") is None


def test_gateways() -> None:
    """Of both families; a route without one has none."""
    routes = ("default via 10.22.0.1 dev eth0 \n10.22.0.0/16 dev eth0\n", "default via fd22::1 dev eth0 metric 1\n")
    assert parse_gateways(routes) == (ip_address("10.22.0.1"), ip_address("fd22::1"))
    assert parse_gateways(("default dev eth0 scope link\n",)) == ()
