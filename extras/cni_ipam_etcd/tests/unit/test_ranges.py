# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Range sets as host-local has them, compared with lists of all their addresses."""

from ipaddress import IPv4Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import JsonError, JsonObject
from cni_ipam_etcd.ranges import RangeSet, first_gap, parse_ranges

NETWORKS = {4: ip_network("10.1.0.0/27"), 6: ip_network("fd00:1::/123")}
HOSTS = st.integers(1, 30)


@st.composite
def sections(draw: st.DrawFn) -> tuple[JsonObject, set[int]]:
    """A section with one set of one range, and the addresses that can be assigned."""
    version = draw(st.sampled_from([4, 6]))
    net = NETWORKS[version]
    first, last = sorted((draw(HOSTS), draw(HOSTS)))
    gateway = draw(HOSTS)
    singles = draw(st.lists(HOSTS, max_size=4))
    blocks = draw(st.lists(st.integers(0, 7), max_size=2))
    within = {net[4 * block + offset] for block in blocks for offset in range(4)} | {net[one] for one in singles}
    document: JsonObject = {
        "subnet": str(net),
        "rangeStart": str(net[first]),
        "rangeEnd": str(net[last]),
        "gateway": str(net[gateway]),
        "exclude": [str(net[one]) for one in singles],
    }
    section: JsonObject = {
        "ranges": [[document]],
        "exclude": [f"{net[4 * block]}/{net.max_prefixlen - 2}" for block in blocks],
    }
    return section, {int(net[number]) for number in range(first, last + 1)} - {int(net[gateway])} - set(
        map(int, within)
    )


def members(one: RangeSet) -> list[int]:
    """Every address of a set, as a number."""
    return [number for span in one.spans for number in range(span.first, span.last + 1)]


@given(sections(), st.integers(0, 1 << 64), st.data())
def test_a_set_has_what_its_range_has(made: tuple[JsonObject, set[int]], number: int, data: st.DataObject) -> None:
    """Neither gateway nor exclusions; any random number draws one; from each address on, all are visited once."""
    section, expected = made
    if not expected:
        with pytest.raises(JsonError, match="no address that can be assigned"):
            parse_ranges(section)
        return
    (one,) = parse_ranges(section)
    assert members(one) == sorted(expected)
    assert one.size == len(expected)
    assert int(one.draw(number)) in expected
    start = one.draw(data.draw(st.integers(0, 100)))
    visited = [visit for first, last in one.stretches(start) for visit in range(first, last + 1)]
    assert visited[0] == int(start)
    assert sorted(visited) == sorted(expected)
    for address in NETWORKS[one.version]:
        assert (one.find_span(address) is not None) == (int(address) in expected)


@given(st.sets(st.integers(0, 40)), st.integers(0, 40))
def test_the_first_gap(taken: set[int], first: int) -> None:
    """It is the lowest number that is not taken."""
    found = first_gap(first, sorted(number for number in taken if number >= first))
    assert found == next(number for number in range(first, 99) if number not in taken)


def test_the_defaults_of_host_local() -> None:
    """The first address is the gateway; the last one of IPv4 is the broadcast address."""
    four, six = parse_ranges({"subnet": "10.1.0.0/29", "ranges": [[{"subnet": "fd00::/126"}]]})
    assert [str(four.address(number)) for number in members(four)] == [f"10.1.0.{host}" for host in range(2, 7)]
    assert [str(six.address(number)) for number in members(six)] == ["fd00::2", "fd00::3"]
    assert str(four.spans[0].gateway) == "10.1.0.1"


def test_several_ranges_in_a_set() -> None:
    """An address has the prefix and the gateway of its own range; sets of a runtime come first."""
    further = [{"subnet": "10.3.0.0/24"}]
    ranges = [[{"subnet": "10.2.0.0/24", "gateway": "10.2.0.254"}, {"subnet": "10.1.0.0/16", "rangeEnd": "10.1.0.9"}]]
    before, one = parse_ranges({"ranges": ranges}, [further])
    assert before.text == "10.3.0.1-10.3.0.254"
    found = [one.find_span(ip_address(text)) for text in ("10.2.0.1", "10.1.0.2", "10.1.0.10", "10.2.0.254")]
    assert [span and (span.prefix, str(span.gateway)) for span in found] == [
        (24, "10.2.0.254"),
        (16, "10.1.0.1"),
        None,
        None,
    ]


def test_a_large_subnet() -> None:
    """One of the first addresses is drawn, and nothing is enumerated."""
    (one,) = parse_ranges({"subnet": "fd00::/64"})
    assert one.size == 2**64 - 2
    assert str(one.draw(2**64 - 1)) == "fd00::1:1"
    assert first_gap(int(IPv4Address("10.0.0.1")), []) == int(IPv4Address("10.0.0.1"))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "there are no ranges"),
        ({"ranges": [[]]}, "range set 0: it is empty"),
        ({"ranges": [[{}]]}, "range set 0: subnet is missing"),
        ({"ranges": [{"subnet": "10.1.0.0/24"}]}, r"range set 0: ranges must be an array, not an object"),
        ({"subnet": "10.1.0.1/24"}, "10.1.0.1/24 has host bits set"),
        ({"subnet": "10.1.0.0/31"}, "10.1.0.0/31 is too small"),
        ({"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"}, "rangeStart 10.2.0.1 is not in 10.1.0.0/24"),
        ({"subnet": "10.1.0.0/24", "rangeEnd": "fd00::1"}, "rangeEnd fd00::1 is not in 10.1.0.0/24"),
        ({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8"}, "10.1.0.9 is behind"),
        ({"subnet": "10.1.0.0/24", "gateway": "x"}, "gateway: 'x' does not appear"),
        ({"subnet": "10.1.0.0/24", "exclude": ["10.1.0.5/24"]}, "exclude: 10.1.0.5/24 has host bits set"),
        ({"subnet": "10.1.0.0/24", "exclude": "10.1.0.5"}, "exclude must be an array"),
        ({"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]]}, "range set 0: it has ranges of IPv4 and"),
        ({"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.1.0.128/25"}]]}, "range set 0 overlaps with 1"),
        ({"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/24"}]]}, "range set 0 has overlaps"),
    ],
)
def test_what_is_refused(section: JsonObject, message: str) -> None:
    """The error says which set, and what is wrong with it."""
    with pytest.raises(JsonError, match=message):
        parse_ranges(section)
