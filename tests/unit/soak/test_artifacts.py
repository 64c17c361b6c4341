# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The artifacts of one attachment are generalised, and expected of another."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.soak.artifacts import Attachment, generalise, kind_of_link, parse_addresses

ONE = Attachment(endpoint="1" * 64, list="lan", addresses=parse_addresses(["fd82::2", "10.82.1.2"]), port=20_001)
OTHER = Attachment(endpoint="2" * 64, list="lan", addresses=parse_addresses(["10.82.1.23", "fd82::23"]), port=20_002)


def rules(attachment: Attachment) -> list[str]:
    """Return rules as plugins create them, including shared subnets."""
    ipv4, ipv6 = attachment.addresses
    chain, ports = attachment.chain, attachment.ports_chain
    return [
        f"ip nat :{chain}",
        f'ip nat -A POSTROUTING -s {ipv4}/32 -m comment --comment "name: lan id: {attachment.endpoint}" -j {chain}',
        f"ip nat -A {chain} -d 10.82.1.0/24 -j ACCEPT",
        f"ip6 filter -A CNI-FORWARD -d {ipv6}/128 -j ACCEPT",
        f"ip nat :{ports}",
        f"ip nat -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports {attachment.port} -j {ports}",
        f"ip nat -A {ports} -p tcp --dport {attachment.port} -j DNAT --to-destination {ipv4}:80",
        f"ip6 nat -A {ports} -p tcp --dport {attachment.port} -j DNAT --to-destination [{ipv6}]:80",
    ]


def test_generalised_rules_apply_to_another_attachment() -> None:
    """They have that attachment's ID, addresses, chains and port."""
    artifacts = generalise(ONE, rules(ONE), ["veth, master cni0"])
    artifacts = replace(artifacts, published=artifacts.rules)
    assert artifacts.rules_of(OTHER) == Counter(rules(OTHER))
    assert artifacts.rules_of(ONE) == Counter(rules(ONE))
    assert (artifacts.families, artifacts.links) == (2, ("veth, master cni0",))


def test_a_published_port_has_additional_rules() -> None:
    """An attachment without a published port has the other rules only."""
    few, all_ = rules(ONE)[:4], rules(ONE)
    artifacts = replace(generalise(replace(ONE, port=None), few, []), published=generalise(ONE, all_, []).rules)
    assert artifacts.rules_of(replace(OTHER, port=None)) == Counter(rules(OTHER)[:4])
    assert artifacts.rules_of(OTHER) == Counter(rules(OTHER))


def test_a_chain_with_an_unknown_name_is_an_error() -> None:
    """Its name cannot be computed for another attachment."""
    with pytest.raises(ValueError, match="CNI-0123456789abcdef01234567"):
        generalise(ONE, ["ip nat :CNI-0123456789abcdef01234567"], [])


def test_links_are_compared_by_kind_and_master() -> None:
    """The names of links are random; bridges are shared, and not compared."""
    assert kind_of_link("vethc0ffee (veth, master cni0)") == "veth, master cni0"
    assert kind_of_link("bwpc0ffee (ifb)") == "ifb"
    assert kind_of_link("cni0 (bridge)") is None
