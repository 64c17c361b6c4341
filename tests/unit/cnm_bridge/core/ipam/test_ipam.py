# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Sections, pools and addresses: what an IPAM plugin receives, what Docker learns, and what is refused."""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from cni_bridge_spec import JsonError, JsonObject, JsonValue, get_object
from cni_bridge_state import AddressPoolRecord, PoolId
from cni_invoker import NetworkConfigurationList, Result
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.ipam.address import is_assignable, plan_address, refuse_address, take_address
from cnm_bridge.core.ipam.sections import (
    IpamSection,
    choose_pool,
    parse_pool_id,
    parse_section,
    refuse_overlap,
    render_pool_id,
    section_name,
    section_of_list,
)
from cnm_bridge.core.ipam.wire import RequestPool
from tests.records import address_pool, list_of

RANGES: JsonObject = {
    "type": "host-local",
    "ranges": [
        [
            {"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.100", "rangeEnd": "10.1.2.150", "gateway": "10.1.2.254"},
            {"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.180", "rangeEnd": "10.1.2.190"},
            {"subnet": "10.9.0.0/24"},
        ],
        [{"subnet": "fd00::/64"}],
    ],
    "routes": [{"dst": "0.0.0.0/0"}],
}


def section(ipam: JsonObject = RANGES) -> IpamSection:
    """Return the section of a file with nothing else."""
    return parse_section({"cniVersion": "1.0.0", "name": "lan", "ipam": ipam}, Path("lan.ipam"))


def request(subnet: str | None = None, part: str | None = None, *, is_ipv6: bool = False) -> RequestPool:
    """Return a request for a pool."""
    return RequestPool(
        subnet=ip_network(subnet) if subnet else None,
        sub_pool=ip_network(part) if part else None,
        options={},
        is_ipv6=is_ipv6,
    )


def pool(subnet: str = "10.1.2.0/24", part: str | None = None) -> AddressPoolRecord:
    """Return a pool."""
    sub_pool = ip_network(part) if part else None
    return address_pool(subnet=ip_network(subnet), sub_pool=sub_pool, gateway=ip_address("10.1.2.254"))


def ranges_of(network: NetworkConfigurationList) -> JsonValue:
    """Return the ranges that a plugin receives."""
    return get_object(network.plugins[0].document, "ipam")["ranges"]


def test_the_section_of_a_list() -> None:
    """The plugin receives the configuration of the plugin that would execute it, with its own type (CNI SPEC §4)."""
    plugins: list[JsonValue] = [
        {"type": "bridge", "bridge": "b0", "capabilities": {"ips": True, "mac": True}, "ipam": RANGES},
        {"type": "firewall"},
    ]
    found = section_of_list(list_of(*plugins))
    assert found.name == "blue"
    assert found.plugin.document == {
        "type": "host-local",
        "bridge": "b0",
        "capabilities": {"ips": True},
        "ipam": RANGES,
    }


def test_a_list_without_a_section() -> None:
    """The error says where a section can be."""
    network = list_of({"type": "loopback"})
    with pytest.raises(Refused, match=r"blue .* has no IPAM section; add one to its plugin, or a file blue\.ipam"):
        section_of_list(network)


@pytest.mark.parametrize(
    "document", [[], {}, {"name": "lan"}, {"name": "lan", "ipam": {}}, {"ipam": RANGES}, {"name": 1, "ipam": RANGES}]
)
def test_malformed_sections(document: JsonValue) -> None:
    """A file without a name or a type is malformed."""
    with pytest.raises(JsonError):
        parse_section(document, Path("lan.ipam"))


@pytest.mark.parametrize(
    ("wanted", "subnet", "gateway"),
    [
        (request(), "10.1.2.0/24", "10.1.2.254"),
        (request("10.9.0.0/24"), "10.9.0.0/24", "10.9.0.1"),
        (request(is_ipv6=True), "fd00::/64", "fd00::1"),
        (request("10.1.2.0/24", "10.1.2.128/25"), "10.1.2.0/24", "10.1.2.254"),
    ],
)
def test_pools(wanted: RequestPool, subnet: str, gateway: str) -> None:
    """A pool is the given subnet, or the first one of the family, with the gateway of its range."""
    found = choose_pool(section(), wanted)
    assert (str(found.subnet), str(found.gateway)) == (subnet, gateway)
    assert found.sub_pool == wanted.sub_pool


@pytest.mark.parametrize(
    ("ipam", "wanted", "reason"),
    [
        (RANGES, request("10.1.0.0/16"), "has no subnet 10.1.0.0/16, but 10.1.2.0/24, 10.9.0.0/24"),
        ({"type": "host-local", "subnet": "10.1.2.0/24"}, request(is_ipv6=True), "has no IPv6 range"),
        (RANGES, request("10.1.2.0/24", "10.1.2.0/26"), "--ip-range 10.1.2.0/26 has no address of"),
        (RANGES, request("10.1.2.0/24", "10.7.0.0/16"), "--ip-range 10.7.0.0/16 has no address of"),
        (RANGES, request("10.1.2.0/24", "fd00::/80"), "--ip-range fd00::/80 has no address of"),
        ({"type": "whereabouts"}, request(), "give the subnet with --subnet"),
        ({"type": "whereabouts"}, request("10.1.2.0/24", "10.1.2.0/25"), "receives no --ip-range"),
        ({"type": "host-local", "ranges": [1]}, request(), "cannot be used"),
    ],
)
def test_refused_pools(ipam: JsonObject, wanted: RequestPool, reason: str) -> None:
    """A pool that the section cannot give is refused, with what it has."""
    with pytest.raises(Refused) as caught:
        choose_pool(section(ipam), wanted)
    assert reason in str(caught.value)


def other_section(**ipam: str) -> IpamSection:
    """Return a section with another name."""
    document: JsonObject = {"cniVersion": "1.0.0", "name": "office", "ipam": {"type": "host-local", **ipam}}
    return parse_section(document, Path("office.ipam"))


@pytest.mark.parametrize(
    "other",
    [
        other_section(subnet="10.1.2.0/24"),
        other_section(subnet="10.1.0.0/16"),
        other_section(subnet="10.1.2.0/24", rangeStart="10.1.2.150"),
        other_section(type="whereabouts"),
    ],
)
def test_overlapping_subnets_of_two_sections(other: IpamSection) -> None:
    """Their plugins would give the same address to two containers, or that is not known."""
    chosen = choose_pool(other, request("10.1.0.0/16" if other.ranges is None else None))
    with pytest.raises(Refused, match=r"overlaps 10\.1\.2\.0/24 of IPAM section lan.*Use section lan"):
        refuse_overlap(other, chosen, [(pool(), section())])
    with pytest.raises(Refused, match="overlaps"):
        refuse_overlap(other, chosen, [(pool(), None)])


@pytest.mark.parametrize(
    "other",
    [
        other_section(subnet="10.1.3.0/24"),
        other_section(subnet="fd00::/64"),
        other_section(subnet="10.1.2.0/24", rangeStart="10.1.2.20", rangeEnd="10.1.2.29"),
    ],
)
def test_sections_without_a_common_address(other: IpamSection) -> None:
    """Two networks on one LAN have parts of its subnet, and one section may be that of several networks."""
    chosen = choose_pool(other, request(is_ipv6=":" in str(other.ipam["subnet"])))
    refuse_overlap(other, chosen, [(pool(), section())])
    refuse_overlap(section(), choose_pool(section(), request()), [(pool(), section())])


def test_a_plugin_whose_ranges_are_unknown() -> None:
    """Its gateway is taken if it is in the subnet; all addresses are left to it."""
    found = choose_pool(section({"type": "whereabouts", "gateway": "10.1.2.7"}), request("10.1.2.0/24"))
    assert str(found.gateway) == "10.1.2.7"
    assert choose_pool(section({"type": "x", "gateway": "10.9.0.1"}), request("10.1.2.0/24")).gateway is None
    assert is_assignable(section({"type": "x"}), pool(), ip_address("10.1.2.3"))
    assert plan_address(section({"type": "x"}), pool(), ip_address("10.1.2.3")).args == (
        ("IgnoreUnknown", "1"),
        ("IP", "10.1.2.3"),
    )


@pytest.mark.parametrize("part", [None, "10.1.2.128/25"])
def test_an_id_says_what_its_pool_stands_for(part: str | None) -> None:
    """A pool is made again from its ID."""
    chosen = choose_pool(section(), request("10.1.2.0/24", part))
    found = parse_pool_id(render_pool_id(chosen, "5f0c81aa"))
    assert found is not None
    assert (found.section, found.subnet, found.sub_pool) == ("lan", chosen.subnet, chosen.sub_pool)


@pytest.mark.parametrize("other", ["", "LocalDefault/10.0.0.0/24", "a,b", "lan,10.1.2.0/99,,0", ",10.1.2.0/24,,0"])
def test_ids_of_others(other: str) -> None:
    """An ID of another IPAM driver is not one of this driver."""
    assert parse_pool_id(PoolId(other)) is None


def test_the_plugin_receives_the_ranges_of_the_pool_only() -> None:
    """host-local assigns one address of each set of ranges, so it receives one set: those of the pool's subnet."""
    assert ranges_of(plan_address(section(), pool(), None).configuration) == [
        [
            {"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.100", "rangeEnd": "10.1.2.150", "gateway": "10.1.2.254"},
            {"subnet": "10.1.2.0/24", "rangeStart": "10.1.2.180", "rangeEnd": "10.1.2.190"},
        ]
    ]
    plain = section({"type": "host-local", "subnet": "10.1.2.0/24", "dataDir": "/data"})
    document = plan_address(plain, pool(), None).configuration.plugins[0].document
    assert document["ipam"] == {"type": "host-local", "dataDir": "/data", "ranges": [[{"subnet": "10.1.2.0/24"}]]}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("10.1.2.128/25", [("10.1.2.128", "10.1.2.150"), ("10.1.2.180", "10.1.2.190")]),
        ("10.1.2.96/28", [("10.1.2.100", "10.1.2.111")]),
    ],
)
def test_a_part_of_the_subnet(part: str, expected: Sequence[tuple[str, str]]) -> None:
    """`--ip-range` restricts each range; one that is outside is left out. A given address may be anywhere."""
    chosen = plan_address(section(), pool(part=part), None).configuration
    assert ranges_of(chosen) == [
        [_with_gateway({"subnet": "10.1.2.0/24", "rangeStart": first, "rangeEnd": last}) for first, last in expected]
    ]
    given = plan_address(section(), pool(part=part), ip_address("10.1.2.101")).configuration
    assert ranges_of(given) == ranges_of(plan_address(section(), pool(), None).configuration)
    assert get_object(given.plugins[0].document, "args") == {"cni": {"ips": ["10.1.2.101"]}}


def _with_gateway(document: JsonObject) -> JsonObject:
    """Return a range with the gateway that the first range of the section has."""
    is_first = str(document["rangeEnd"]) <= "10.1.2.150"
    return {**document, "gateway": "10.1.2.254"} if is_first else document


def test_a_section_that_has_lost_its_subnet() -> None:
    """The error says what it has now."""
    with pytest.raises(Refused, match=r"has no range in 10\.8\.0\.0/24 any more, but 10\.1\.2\.0/24, 10\.9\.0\.0/24"):
        plan_address(section(), pool("10.8.0.0/24"), None)


def test_which_addresses_the_plugin_can_assign() -> None:
    """Those between the ends of one of its ranges of that subnet."""
    assert is_assignable(section(), pool(), ip_address("10.1.2.185"))
    assert not is_assignable(section(), pool(), ip_address("10.1.2.160"))
    assert not is_assignable(section(), pool(), ip_address("10.9.0.5"))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.9.0.5", "is not in 10.1.2.0/24"),
        ("fd00::1", "is not in 10.1.2.0/24"),
        ("10.1.2.254", "is the gateway of"),
        ("10.1.2.0", "is the network or broadcast address"),
        ("10.1.2.255", "is the network or broadcast address"),
    ],
)
def test_addresses_that_nobody_can_have(address: str, reason: str) -> None:
    """They are refused before the plugin runs: it would not see those outside of its ranges."""
    with pytest.raises(Refused, match=reason):
        refuse_address(pool(), ip_address(address), is_gateway=False)
    refuse_address(pool(), ip_address("10.1.2.254"), is_gateway=True)
    refuse_address(pool("10.1.2.0/31"), ip_address("10.1.2.0"), is_gateway=False)


def result(*addresses: str) -> Result:
    """Return the result of an IPAM plugin."""
    ips: list[JsonValue] = [{"address": address} for address in addresses]
    return Result.from_document({"cniVersion": "1.0.0", "ips": ips}, cni_version="1.0.0")


@pytest.mark.parametrize(
    ("addresses", "wanted", "reason"),
    [
        ((), None, "assigned none; Docker takes exactly one address"),
        (("10.1.2.3/24", "fd00::3/64"), None, "assigned 10.1.2.3/24, fd00::3/64; Docker takes exactly one"),
        (("10.9.0.3/24",), None, "assigned 10.9.0.3/24; Docker takes exactly one address, in 10.1.2.0/24"),
        (("10.1.2.3/24",), "10.1.2.4", "assigned 10.1.2.3/24, not 10.1.2.4: it does not take requested addresses"),
    ],
)
def test_results_that_docker_cannot_use(addresses: Sequence[str], wanted: str | None, reason: str) -> None:
    """They are refused; the reservation is then undone."""
    with pytest.raises(Refused, match=reason):
        take_address(pool(), result(*addresses), None if wanted is None else ip_address(wanted))


def test_the_option() -> None:
    """`cni.ipam` names the section; an unknown option is refused with the nearest known one."""
    assert section_name({"cni.ipam": "lan"}) == "lan"
    assert section_name({}) is None
    with pytest.raises(BadOption, match=r"--ipam-opt cni\.ipam=NAME"):
        section_name({"cni.ipam": ""})
    with pytest.raises(BadOption, match=r"did you mean cni\.ipam\?"):
        section_name({"cni.ipam": "lan", "cni.ipan": "x"})
