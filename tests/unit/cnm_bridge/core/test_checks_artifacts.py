# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Missing reservations and rules are found, as far as a list shows what there must be."""

from ipaddress import ip_interface

import pytest

from cni_bridge_spec import JsonObject, get_objects
from cnm_bridge.core.checks import find_missing_reservations, find_missing_rules, makes_nothing

ADDRESSES = [ip_interface("10.1.2.3/24"), ip_interface("fd00::3/64")]
BRIDGE: JsonObject = {"type": "bridge", "ipMasq": True, "ipam": {"type": "host-local"}}
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
PORTS: JsonObject = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
CHAIN = "CNI-0123456789abcdef01234567"
MASQUERADING = [
    f'iptables -t nat -A POSTROUTING -s 10.1.2.3/32 -m comment --comment "x" -j {CHAIN}',
    f"iptables -t nat -A {CHAIN} ! -d 224.0.0.0/4 -j MASQUERADE",
    f'ip6tables -t nat -A POSTROUTING -s fd00::3/128 -m comment --comment "x" -j {CHAIN}',
    f"ip6tables -t nat -A {CHAIN} ! -d ff00::/8 -j MASQUERADE",
]
DN = "CNI-DN-0123456789abcdef01234 -p tcp"
PUBLISHING = [
    "iptables -t nat -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234",
    f"iptables -t nat -A {DN} -m tcp --dport 8080 -j DNAT --to-destination 10.1.2.3:80",
    f"iptables -t nat -A {DN} -m tcp -s 10.1.2.0/24 --dport 8080 -j CNI-HOSTPORT-SETMARK",
    f"iptables -t nat -A {DN} -m tcp -s 127.0.0.1/32 --dport 8080 -j CNI-HOSTPORT-SETMARK",
    "ip6tables -t nat -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234",
    f"ip6tables -t nat -A {DN} -m tcp --dport 8080 -j DNAT --to-destination [fd00::3]:80",
    f"ip6tables -t nat -A {DN} -m tcp -s fd00::/64 --dport 8080 -j CNI-HOSTPORT-SETMARK",
]
ENTRIES = [
    f"{command} -t nat -A {chain} {match} -j CNI-HOSTPORT-{target}"
    for command in ("iptables", "ip6tables")
    for chain, match, target in (
        ("PREROUTING", "-m addrtype --dst-type LOCAL", "DNAT"),
        ("OUTPUT", "-m addrtype --dst-type LOCAL", "DNAT"),
        ("POSTROUTING", '-m comment --comment "CNI portfwd requiring masquerade"', "MASQ"),
    )
]
MARKED_BY_OTHERS = [rule.replace("CNI-HOSTPORT-SETMARK", "KUBE-MARK-MASQ") for rule in PUBLISHING]
UNMARKED = [rule for rule in ENTRIES if "MASQ" not in rule]


@pytest.mark.parametrize(
    ("plugin", "given", "nothing"),
    [
        ({}, {}, True),
        ({"ingressRate": 0}, {}, True),
        ({"egressRate": 1000, "egressBurst": 1000}, {}, False),
        ({"capabilities": {"bandwidth": True}}, {}, True),
        ({"capabilities": {"bandwidth": True}}, {"bandwidth": {"ingressRate": 1000, "ingressBurst": 1000}}, False),
        ({"capabilities": {"bandwidth": False}}, {"bandwidth": {"ingressRate": 1000}}, True),
        ({"type": "tuning"}, {}, False),
    ],
)
def test_bandwidth_without_a_rate_makes_nothing(plugin: JsonObject, given: JsonObject, *, nothing: bool) -> None:
    """It has a rate in the list, or by its capability; other plugins always make something."""
    assert makes_nothing({"type": "bandwidth", **plugin}, given) is nothing


def test_nothing_is_missing() -> None:
    """Of an untouched container."""
    paths = ["/var/lib/cni/networks/lan/10.1.2.3", "/var/lib/cni/networks/lan/fd00__3"]
    assert list(find_missing_reservations([BRIDGE], ADDRESSES, paths)) == []
    assert list(find_missing_rules([BRIDGE, PORTMAP], ADDRESSES, PORTS, MASQUERADING + PUBLISHING, ENTRIES)) == []


@pytest.mark.parametrize("index", range(4))
def test_a_missing_rule_of_masquerading(index: int) -> None:
    """Each of the rules that the plugin makes for a family is needed."""
    rules = [rule for number, rule in enumerate(MASQUERADING) if number != index]
    (found,) = find_missing_rules([BRIDGE], ADDRESSES, {}, rules, [])
    assert str(ADDRESSES[index // 2].ip) in found


@pytest.mark.parametrize("index", range(7))
def test_a_missing_rule_of_a_port(index: int) -> None:
    """Each of the rules of a family is needed."""
    rules = [rule for number, rule in enumerate(PUBLISHING) if number != index]
    (found,) = find_missing_rules([PORTMAP], ADDRESSES, PORTS, rules, ENTRIES)
    assert "portmap" in found


@pytest.mark.parametrize("index", range(6))
def test_a_missing_entry(index: int) -> None:
    """No port of the host works without the rule that leads to the chain of all ports."""
    entries = [rule for number, rule in enumerate(ENTRIES) if number != index]
    (found,) = find_missing_rules([PORTMAP], ADDRESSES, PORTS, PUBLISHING, entries)
    assert ENTRIES[index].split()[4] in found
    assert not list(find_missing_rules([PORTMAP], ADDRESSES, {}, [], entries))
    elsewhere = [*entries, f"{ENTRIES[index]}-OF-ANOTHER"]
    assert list(find_missing_rules([PORTMAP], ADDRESSES, PORTS, PUBLISHING, elsewhere)) == [found]


@pytest.mark.parametrize(
    ("plugin", "port", "rules", "entries"),
    [
        ({**PORTMAP, "snat": False}, {}, [PUBLISHING[index] for index in (0, 1, 4, 5)], UNMARKED),
        ({**PORTMAP, "externalSetMarkChain": "KUBE-MARK-MASQ"}, {}, MARKED_BY_OTHERS, UNMARKED),
        (PORTMAP, {"hostIP": "127.0.0.1"}, PUBLISHING[:4], ENTRIES[:3]),
        (PORTMAP, {"hostIP": "::1"}, PUBLISHING[4:], ENTRIES[3:]),
    ],
)
def test_what_a_port_needs(plugin: JsonObject, port: JsonObject, rules: list[str], entries: list[str]) -> None:
    """Without `snat` nothing is marked, or a chain of another program marks; an address of the host has one family."""
    (plain,) = get_objects(PORTS, "portMappings")
    ports: JsonObject = {"portMappings": [{**plain, **port}]}
    assert list(find_missing_rules([plugin], ADDRESSES, ports, rules, entries)) == []


def test_a_missing_reservation() -> None:
    """The address is named."""
    (found,) = find_missing_reservations([BRIDGE], ADDRESSES, ["/var/lib/cni/networks/lan/10.1.2.3"])
    assert "fd00::3" in found


@pytest.mark.parametrize(
    "plugin",
    [
        {"type": "bridge"},
        {"type": "macvlan", "ipMasq": True},
        {"type": "bridge", "ipMasq": True, "ipMasqBackend": "nftables"},
        {"type": "portmap", "backend": "nftables"},
    ],
)
def test_what_a_list_does_not_promise_is_not_missed(plugin: JsonObject) -> None:
    """Other plugins make other rules, or none."""
    assert list(find_missing_rules([plugin], ADDRESSES, PORTS, [], [])) == []
    assert list(find_missing_reservations([plugin], ADDRESSES, [])) == []
