# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What an operator asks for is read, or refused with the option's name and a remedy."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from cnm_bridge.core.errors import BadOption
from cnm_bridge.operator.networks.wanted import parse_wanted


def test_a_subnet_of_each_family() -> None:
    """Without more options the gateway is the first address; IPv4 comes first."""
    wanted = parse_wanted("blue", subnets=["fd22::/64", "10.22.0.0/16"])
    assert [str(one.subnet) for one in wanted.ranges] == ["10.22.0.0/16", "fd22::/64"]
    assert [str(one.gateway) for one in wanted.ranges] == ["10.22.0.1", "fd22::1"]
    assert [(str(one.first), str(one.last)) for one in wanted.ranges] == [
        ("10.22.0.1", "10.22.255.254"),
        ("fd22::1", "fd22::ffff:ffff:ffff:ffff"),
    ]
    assert (wanted.is_masqueraded, wanted.is_isolated, wanted.has_dhcp) == (True, False, False)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("10.22.9.0/24", "10.22.9.0", "10.22.9.255"),
        ("10.22.0.10-10.22.0.99", "10.22.0.10", "10.22.0.99"),
        ("10.22.0.0/24", "10.22.0.1", "10.22.0.255"),
        ("10.22.255.0/24", "10.22.255.0", "10.22.255.254"),
        ("10.22.0.0/16", "10.22.0.1", "10.22.255.254"),
    ],
)
def test_a_range(text: str, first: str, last: str) -> None:
    """A block loses the addresses that stand for the whole subnet; what is between two addresses is exact."""
    (one,) = parse_wanted("blue", subnets=["10.22.0.0/16"], gateways=["10.22.0.254"], ranges=[text]).ranges
    assert (one.first, one.last, one.gateway) == (ip_address(first), ip_address(last), ip_address("10.22.0.254"))
    assert one.subnet == ip_network("10.22.0.0/16")


def test_a_parent() -> None:
    """Nothing is masqueraded on it; with DHCP there are no ranges."""
    wanted = parse_wanted("lan", parent="eth0", dhcp=True)
    assert (wanted.has_dhcp, wanted.is_masqueraded) == (True, False)
    assert not parse_wanted("lan", parent="eth0", subnets=["192.0.2.0/24"]).has_dhcp


SUBNET = {"subnets": ["10.22.0.0/16"]}


@pytest.mark.parametrize(
    ("option", "remedy", "given"),
    [
        ("--subnet", "--subnet 10.22.0.0/16", {}),
        ("--subnet", "--subnet 10.22.0.0/16", {"parent": "eth0"}),
        ("--subnet", "write it like 10.22.0.0/16", {"subnets": ["10.22.0.0"]}),
        ("--subnet", "write it like 10.22.0.0/16", {"subnets": ["ten/16"]}),
        ("--subnet", "did you mean 10.22.0.0/16?", {"subnets": ["10.22.0.1/16"]}),
        ("--subnet", "did you mean fd22::/64?", {"subnets": ["fd22::1/64"]}),
        ("--subnet", "use /30 or larger", {"subnets": ["10.22.0.0/31"]}),
        ("--subnet", "use /126 or larger", {"subnets": ["fd22::/127"]}),
        ("--subnet", "loopback", {"subnets": ["126.0.0.0/7"]}),
        ("--subnet", "this host", {"subnets": ["0.0.0.0/0"]}),
        ("--subnet", "link-local", {"subnets": ["fe80::/64"]}),
        ("--subnet", "multicast", {"subnets": ["224.0.0.0/24"]}),
        ("--subnet", "both IPv4", {"subnets": ["10.22.0.0/16", "10.23.0.0/16"]}),
        ("--gateway", "not an address", {**SUBNET, "gateways": ["router"]}),
        ("--gateway", "not an address", {"subnets": ["fd22::/64"], "gateways": ["fd22::1%eth0"]}),
        ("--gateway", "is not in 10.22.0.0/16", {**SUBNET, "gateways": ["10.23.0.1"]}),
        ("--gateway", "is not in 10.22.0.0/16", {**SUBNET, "gateways": ["fd22::1"]}),
        ("--gateway", "stands for all", {**SUBNET, "gateways": ["10.22.0.0"]}),
        ("--gateway", "stands for all", {**SUBNET, "gateways": ["10.22.255.255"]}),
        ("--gateway", "leave one out", {**SUBNET, "gateways": ["10.22.0.1", "10.22.0.2"]}),
        ("--range", "10.22.0.10-10.22.0.99", {**SUBNET, "ranges": ["10.22.0.10"]}),
        ("--range", "10.22.9.0/24", {**SUBNET, "ranges": ["10.22.9.1/24"]}),
        ("--range", "is not in 10.22.0.0/16", {**SUBNET, "ranges": ["10.23.0.0/24"]}),
        ("--range", "is not in 10.22.0.0/16", {**SUBNET, "ranges": ["10.22.0.0/15"]}),
        ("--range", "is not in 10.22.0.0/16", {**SUBNET, "ranges": ["10.22.0.9-fd22::9"]}),
        ("--range", "stands for all", {**SUBNET, "ranges": ["10.22.0.0-10.22.0.9"]}),
        ("--range", "no address", {**SUBNET, "ranges": ["10.22.0.9-10.22.0.2"]}),
        ("--range", "no address", {**SUBNET, "ranges": ["10.22.0.1-10.22.0.1"]}),
        ("--range", "leave one out", {**SUBNET, "ranges": ["10.22.1.0/24", "10.22.2.0/24"]}),
        ("--dhcp", "--parent LINK", {"dhcp": True}),
        ("--dhcp", "leave out --subnet", {**SUBNET, "dhcp": True, "parent": "eth0"}),
        ("--isolated", "--subnet", {"dhcp": True, "parent": "eth0", "isolated": True}),
        ("--gateway", "leave one of them out", {**SUBNET, "gateways": ["10.22.0.1"], "isolated": True}),
        ("--allow", "does not pass the host's rules", {**SUBNET, "parent": "eth0", "allow": ["a.example"]}),
        ("--audit", "does not pass the host's rules", {"parent": "eth0", "dhcp": True, "audit": True}),
        ("--allow", "leave one of them out", {**SUBNET, "isolated": True, "allow": ["a.example"]}),
        ("--no-masquerade", "leave it out", {**SUBNET, "parent": "eth0", "no_masquerade": True}),
        ("--parent", "eth 0", {**SUBNET, "parent": "eth 0"}),
        ("--mtu", "68", {**SUBNET, "mtu": 67}),
        ("--mtu", "65535", {**SUBNET, "mtu": 65536}),
        ("--mtu", "1280, the smallest of IPv6", {"subnets": ["fd22::/64"], "mtu": 1279}),
    ],
)
def test_a_refusal_names_option_and_remedy(option: str, remedy: str, given: Mapping[str, Any]) -> None:
    """Nothing is guessed."""
    with pytest.raises(BadOption) as refused:
        parse_wanted("blue", **given)
    assert refused.value.option == option
    assert remedy in str(refused.value)


@pytest.mark.parametrize("name", ["", "-blue", "a/b", "a b", ".."])
def test_a_name_that_is_none(name: str) -> None:
    """It becomes part of a path."""
    with pytest.raises(BadOption, match="NAME"):
        parse_wanted(name, subnets=["10.22.0.0/16"])


def test_the_longest_name() -> None:
    """The list's file has it."""
    assert parse_wanted("x" * 246, subnets=["10.22.0.0/16"]).name == "x" * 246
    with pytest.raises(
        BadOption, match=r"has 251 characters; 246 are possible, because the list's file is NAME\.conflist"
    ):
        parse_wanted("x" * 251, subnets=["10.22.0.0/16"])


@pytest.mark.parametrize(("mtu", "subnets"), [(68, ["10.22.0.0/16"]), (1280, ["fd22::/64"]), (65535, ["fd22::/64"])])
def test_the_extreme_mtus(mtu: int, subnets: Sequence[str]) -> None:
    """They are possible."""
    assert parse_wanted("blue", subnets=subnets, mtu=mtu).mtu == mtu
