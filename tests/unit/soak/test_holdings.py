# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Output of iproute2, tc and /proc/sys in a container and on the host is parsed."""

from tests.soak.holdings import read_holdings, read_host

HOST = """[{"ifindex": 7, "ifname": "veth1", "flags": ["UP"], "mtu": 1400, "master": "cni1", "linkinfo": \
{"info_kind": "veth", "info_slave_data": {"state": "forwarding", "hairpin": true, "cost": 2}}}]
unicast 10.82.1.2 dev veth1 table main proto kernel scope host
qdisc tbf 8001: dev veth1 root refcnt 2 rate 100Mbit burst 1Mb lat 25ms
"""
INSIDE = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN\\    link/loopback 00:00:00:00:00:00
2: eth0@if7: <BROADCAST,UP,LOWER_UP> mtu 1400 qdisc noqueue state UP\\    link/ether 06:98:c9:90:32:f1 brd ff:ff
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever
2: eth0    inet 10.82.1.2/24 brd 10.82.1.255 scope global eth0\\       valid_lft forever
2: eth0    inet6 fd82:1::2/64 scope global tentative nodad \\       valid_lft forever
2: eth0    inet6 fe80::498:c9ff:fe90:32f1/64 scope link tentative \\       valid_lft forever
unicast default via 10.82.1.1 dev eth0 table main proto static scope global
unicast 10.82.1.0/24 dev eth0 table main proto kernel scope link src 10.82.1.2
multicast ff00::/8 dev eth0 table local proto kernel scope global metric 256 pref medium
32765:\tfrom 10.82.1.2 lookup 100
10.82.1.22 dev eth0 lladdr 02:00:00:00:00:01 PERMANENT
/proc/sys/net/ipv4/conf/eth0/arp_filter:1
silent: 10.82.1.1
"""


def test_every_resource_is_a_line() -> None:
    """Links, addresses, routes, rules, neighbours and sysctls are lines; what changes by itself is left out."""
    found = read_holdings(INSIDE, read_host(HOST))
    assert found.lines == {
        "link lo: UP mtu 65536",
        "link eth0: UP mtu 1400 mac 06:98:c9:90:32:f1",
        "address 127.0.0.1/8 dev lo",
        "address 10.82.1.2/24 dev eth0",
        "address fd82:1::2/64 dev eth0",
        "unicast default via 10.82.1.1 dev eth0 table main proto static scope global",
        "unicast 10.82.1.0/24 dev eth0 table main proto kernel scope link src 10.82.1.2",
        "32765:\tfrom 10.82.1.2 lookup 100",
        "10.82.1.22 dev eth0 lladdr 02:00:00:00:00:01 PERMANENT",
        "/proc/sys/net/ipv4/conf/eth0/arp_filter:1",
        *(f"eth0: {line}" for line in ON_HOST),
    }
    assert found.silent == {"10.82.1.1"}


ON_HOST = {
    "on the host: veth, master cni1, mtu 1400, up, {'state': 'forwarding', 'hairpin': True}",
    "on the host: unicast ADDRESS dev LINK table main proto kernel scope host",
    "on the host: qdisc tbf dev LINK root rate 100Mbit burst 1Mb lat 25ms",
}


def test_a_link_in_general_form_has_placeholders() -> None:
    """They replace its name, addresses and MAC address, but not addresses that only begin like one of them."""
    (link,) = read_holdings(INSIDE, read_host(HOST)).links.values()
    assert link.addresses == {"10.82.1.2", "fd82:1::2"}
    assert link.general == {
        "link LINK: UP mtu 1400 mac MAC",
        "address ADDRESS-4/24 dev LINK",
        "address ADDRESS-6/64 dev LINK",
        "unicast default via 10.82.1.1 dev LINK table main proto static scope global",
        "unicast 10.82.1.0/24 dev LINK table main proto kernel scope link src ADDRESS-4",
        "32765:\tfrom ADDRESS-4 lookup 100",
        "10.82.1.22 dev LINK lladdr 02:00:00:00:00:01 PERMANENT",
        "/proc/sys/net/ipv4/conf/LINK/arp_filter:1",
        *ON_HOST,
    }


def test_a_missing_host_link_is_a_line() -> None:
    """The line says that there is nothing on the host."""
    found = read_holdings(INSIDE, read_host("[]\n"))
    assert "eth0: on the host: nothing" in found.lines
