# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the specification calls lossless is: results there and back again between versions."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from cni_invoker import (
    SUPPORTED_VERSIONS,
    BadResult,
    Result,
    convert_result,
)
from spec import JsonObject, JsonValue, get_str

FLAT: Final = ("0.1.0", "0.2.0")
LISTS: Final = ("0.3.0", "0.3.1", "0.4.0")
PLAIN: Final = ("1.0.0", "1.1.0")
V4: Final = st.ip_addresses(v=4).map(str)
V6: Final = st.ip_addresses(v=6).map(str)


def optional(**values: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Give objects in which each key may be missing."""
    return st.fixed_dictionaries({}, optional=values)


def assignments(interfaces: int) -> st.SearchStrategy[list[dict[str, JsonValue]]]:
    """Give addresses, each of an interface or of none."""
    index: st.SearchStrategy[JsonValue] = st.integers(0, interfaces - 1) if interfaces else st.nothing()
    one = [
        st.builds(
            lambda address, length, more: {"address": f"{address}/{length}", **more},
            address,
            st.integers(0, bits),
            optional(gateway=address, **({"interface": index} if interfaces else {})),
        )
        for address, bits in ((V4, 32), (V6, 128))
    ]
    return st.lists(st.one_of(one), max_size=4)


DNS: Final = optional(nameservers=st.lists(V4, max_size=2), domain=st.just("example.org"))
ROUTES: Final = st.lists(
    st.builds(
        lambda dst, more: {"dst": f"{dst}/32", **more},
        V4,
        optional(gw=V4, mtu=st.integers(68, 9000), priority=st.integers(0, 9), table=st.integers(1, 9)),
    ),
    max_size=3,
)
INTERFACES: Final = st.lists(
    st.builds(
        lambda name, more: {"name": name, **more},
        st.sampled_from(["eth0", "br0"]),
        optional(mac=st.just("02:00:00:00:00:01"), sandbox=st.just("/run/netns/c1")),
    ),
    max_size=2,
)


@st.composite
def results(draw: st.DrawFn) -> JsonObject:
    """Give results of 1.x that say nothing the versions from 0.3.0 on could not."""
    interfaces = draw(INTERFACES)
    parts: dict[str, JsonValue] = {
        "interfaces": interfaces,
        "ips": draw(assignments(len(interfaces))),
        "routes": draw(ROUTES),
        "dns": draw(DNS),
    }
    return {"cniVersion": draw(st.sampled_from(PLAIN)), **{key: value for key, value in parts.items() if value}}


@given(results(), st.sampled_from((*LISTS, *PLAIN)))
def test_conversion_from_0_3_0_on_loses_nothing(document: JsonObject, version: str) -> None:
    """There and back again gives the same result, and on the way it means the same."""
    there = convert_result(document, version)
    assert convert_result(there, get_str(document, "cniVersion")) == document
    one, other = Result.from_document(document), Result.from_document(there)
    assert (one.ips, one.routes, one.dns, one.interfaces) == (other.ips, other.routes, other.dns, other.interfaces)


@st.composite
def old_results(draw: st.DrawFn) -> JsonObject:
    """Give results of before 0.3.0 that have an address."""
    families: dict[str, JsonValue] = {}
    for key, address, bits in (("ip4", V4, 32), ("ip6", V6, 128)):
        dst = st.builds(lambda to, more, bits=bits: {"dst": f"{to}/{bits}", **more}, address, optional(gw=address))
        if not families or draw(st.booleans()):
            given_routes = draw(st.lists(dst, max_size=2))
            family = {"ip": f"{draw(address)}/{draw(st.integers(0, bits))}", **draw(optional(gateway=address))}
            families[key] = {**family, **({"routes": given_routes} if given_routes else {})}
    if len(families) == 2 and draw(st.booleans()):
        del families["ip4"]
    return {"cniVersion": draw(st.sampled_from(FLAT)), **families, **draw(optional(dns=DNS))}


@given(old_results(), st.sampled_from(SUPPORTED_VERSIONS))
def test_conversion_of_an_old_result_loses_nothing(document: JsonObject, version: str) -> None:
    """What 0.2.0 can say, every later version can say too, and say it back."""
    there = convert_result(document, version)
    assert convert_result(there, get_str(document, "cniVersion")) == document
    one, other = Result.from_document(document), Result.from_document(there)
    assert (one.ips, one.routes, one.dns) == (other.ips, other.routes, other.dns)


@given(results(), st.sampled_from(SUPPORTED_VERSIONS), st.sampled_from(SUPPORTED_VERSIONS))
def test_conversion_does_not_depend_on_the_way(document: JsonObject, first: str, second: str) -> None:
    """By way of a version that can say at least as much, the end is the same."""
    if SUPPORTED_VERSIONS.index(first) < SUPPORTED_VERSIONS.index(second):
        first, second = second, first
    try:
        wanted = convert_result(document, second)
    except BadResult:
        assert "ips" not in document
        return
    assert convert_result(convert_result(document, first), second) == wanted


def test_numbers_are_kept() -> None:
    """An integer that no floating point number can hold is the same after all conversions."""
    routes: JsonValue = [{"dst": "10.0.0.0/8", "priority": 9007199254740993}]
    document: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24"}], "routes": routes}
    for version in (*LISTS, *PLAIN):
        (route,) = Result.from_document(convert_result(document, version)).routes
        assert route.priority == 9007199254740993
