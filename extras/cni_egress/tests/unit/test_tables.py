# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The text of the tables: what a policy becomes, in which order, and when two containers share it."""

from ipaddress import ip_network

from cni_egress.policy import Policy
from cni_egress.tables import chain_of, count_rules, render_base, render_policy, version_of

SUBNETS = (ip_network("10.66.0.0/24"), ip_network("fd66::/64"))


def rules(*entries: str, audit: bool = False) -> list[str]:
    """The rules of a policy's chain, without those that every policy has."""
    policy = Policy.parse(entries, audit=audit)
    (_, chain) = render_policy(policy, SUBNETS).split(" chain ")
    found = [line.strip() for line in chain.splitlines()[1:-2]]
    always = {
        "jump known",
        "ip daddr 10.66.0.0/24 fib daddr oifname @inside goto pass",
        "ip6 daddr fd66::/64 fib daddr oifname @inside goto pass",
    }
    assert always < set(found)
    return [rule for rule in found if rule not in always and "169.254.0.0/16" not in rule and "fe80::/10" not in rule]


def test_nothing_is_allowed_by_an_empty_list() -> None:
    """The last rule refuses, and queries are refused as well."""
    assert rules() == ["fib daddr type != unicast goto refuse", "goto refuse"]


def test_the_host_before_networks_and_networks_before_names() -> None:
    """A network that has an address of the host does not open the host."""
    assert rules("b.example", "0.0.0.0/0:22/tcp", "host:8080/tcp", "169.254.169.254:80/tcp") == [
        "meta l4proto { tcp, udp } th dport 53 ct state new goto pass",
        "fib daddr type local tcp dport 8080 goto pass",
        "fib daddr type != unicast goto refuse",
        "tcp dport 80 ip daddr { 169.254.169.254/32 } goto pass",
        "tcp dport 22 ip daddr { 0.0.0.0/0 } goto pass",
        "ip saddr . ip daddr . meta l4proto . th dport @names4 goto pass",
        "ip6 saddr . ip6 daddr . meta l4proto . th dport @names6 goto pass",
        "goto refuse",
    ]


def test_overlapping_networks() -> None:
    """An interval set refuses overlaps, so the smaller network is left out; each port is a rule of its own."""
    found = rules(
        "10.0.0.0/8:443/tcp", "10.1.0.0/16:443/tcp", "192.0.2.0/25:443/tcp", "192.0.2.128/25:443/tcp", "10.1.0.0/16"
    )
    assert found[1:-1] == [
        "tcp dport 443 ip daddr { 10.0.0.0/8, 192.0.2.0/24 } goto pass",
        "ip daddr { 10.1.0.0/16 } goto pass",
    ]


def test_names_with_ranges_have_sets() -> None:
    """All containers share the set of a range; single ports are in the set of names."""
    policy = Policy.parse(["a.example:*", "b.example:8000-8100/udp", "c.example:22/tcp"])
    text = render_policy(policy, SUBNETS)
    assert "  set any-6 { type ipv6_addr . ipv6_addr; flags timeout; }\n" in text
    assert "  set udp-8000-8100-4 { type ipv4_addr . ipv4_addr; flags timeout; }\n" in text
    assert text.count("  set ") == 4
    assert "udp dport 8000-8100 ip saddr . ip daddr @udp-8000-8100-4 goto pass" in text


def test_audit() -> None:
    """What is not allowed is logged and passes."""
    assert rules("10.0.0.0/8", audit=True)[-1] == "goto only-log"
    assert not any("refuse" in rule for rule in rules(audit=True))


def test_containers_share_a_chain() -> None:
    """Names are in sets, so lists that differ only in names have one chain."""
    one, two = Policy.parse(["a.example", "10.0.0.0/8"]), Policy.parse(["10.0.0.0/8", "b.example", "c.example"])
    assert chain_of(one, SUBNETS) == chain_of(two, SUBNETS)
    for other in (["10.0.0.0/8"], ["a.example"], ["a.example:*", "10.0.0.0/8"], ["a.example", "10.0.0.0/9"]):
        assert chain_of(Policy.parse(other), SUBNETS) != chain_of(one, SUBNETS)
    assert chain_of(one, SUBNETS[:1]) != chain_of(one, SUBNETS)


def test_rules_are_counted() -> None:
    """A chain from which a rule was removed is found by its number of rules."""
    counted = count_rules(render_base(1 << 28))
    assert counted["inet", "guard"] == counted["bridge", "received"] == counted["inet", "pass"] == 1
    assert counted["inet", "known"] == 2
    policy = Policy.parse(["10.0.0.0/8"])
    text = render_policy(policy, SUBNETS)
    assert count_rules(text) == {("inet", chain_of(policy, SUBNETS)): len(rules("10.0.0.0/8")) + 5}


def test_the_mark_is_part_of_the_version() -> None:
    """Tables with another mark are made anew."""
    one, two = render_base(1 << 28), render_base(1 << 29)
    assert "meta mark set meta mark or 0x10000000 accept" in one
    assert f"chain {version_of(1 << 28)} " in one
    assert version_of(1 << 28) not in two
