# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Conversions between versions that the SPEC calls lossless are lossless in both directions."""

from ipaddress import IPv6Address
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, get_str
from cni_invoker import SUPPORTED_VERSIONS, Result
from cni_invoker.advanced import convert_result
from cni_invoker.errors import BadResult

FLAT: Final = ("0.1.0", "0.2.0")
LISTS: Final = ("0.3.0", "0.3.1", "0.4.0")
PLAIN: Final = ("1.0.0", "1.1.0")
V4: Final = st.ip_addresses(v=4).map(str)
V6: Final = st.from_type(IPv6Address).filter(lambda address: address.ipv4_mapped is None).map(str)
"""An IPv4 address that is written as IPv6 counts as IPv4."""


def optional(**values: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[dict[str, JsonValue]]:
    """Return a strategy for objects in which each key may be missing."""
    return st.fixed_dictionaries({}, optional=values)


def assignments(interfaces: int) -> st.SearchStrategy[list[dict[str, JsonValue]]]:
    """Return a strategy for addresses, each of one interface or of none."""
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
    """Return results of 1.x that all versions from 0.3.0 on can represent."""
    interfaces = draw(INTERFACES)
    parts: dict[str, JsonValue] = {
        "interfaces": interfaces,
        "ips": draw(assignments(len(interfaces))),
        "routes": draw(ROUTES),
        "dns": draw(DNS),
    }
    return {"cniVersion": draw(st.sampled_from(PLAIN)), **{key: value for key, value in parts.items() if value}}


@given(results(), st.sampled_from((*LISTS, *PLAIN)))
def test_conversion_between_0_3_0_and_newer_is_lossless(document: JsonObject, version: str) -> None:
    """Conversion to another version and back gives the same document; the typed fields are equal."""
    converted = convert_result(document, version)
    assert convert_result(converted, get_str(document, "cniVersion")) == document
    one, other = Result.from_document(document), Result.from_document(converted)
    assert (one.ips, one.routes, one.dns, one.interfaces) == (other.ips, other.routes, other.dns, other.interfaces)


@st.composite
def old_results(draw: st.DrawFn) -> JsonObject:
    """Return results older than 0.3.0 that have an address."""
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
def test_conversion_of_a_result_older_than_0_3_0_is_lossless(document: JsonObject, version: str) -> None:
    """Every later version can represent a result of 0.2.0, and converts it back."""
    converted = convert_result(document, version)
    assert convert_result(converted, get_str(document, "cniVersion")) == document
    one, other = Result.from_document(document), Result.from_document(converted)
    assert (one.ips, one.routes, one.dns) == (other.ips, other.routes, other.dns)


@given(results(), st.sampled_from(SUPPORTED_VERSIONS), st.sampled_from(SUPPORTED_VERSIONS))
def test_conversion_does_not_depend_on_intermediate_versions(document: JsonObject, first: str, second: str) -> None:
    """Conversion through a newer version gives the same document as direct conversion."""
    if SUPPORTED_VERSIONS.index(first) < SUPPORTED_VERSIONS.index(second):
        first, second = second, first
    try:
        wanted = convert_result(document, second)
    except BadResult:
        assert "ips" not in document
        return
    assert convert_result(convert_result(document, first), second) == wanted


def test_numbers_are_kept() -> None:
    """An integer that no floating-point number can represent is unchanged by every conversion."""
    routes: JsonValue = [{"dst": "10.0.0.0/8", "priority": 9007199254740993}]
    document: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24"}], "routes": routes}
    for version in (*LISTS, *PLAIN):
        (route,) = Result.from_document(convert_result(document, version)).routes
        assert route.priority == 9007199254740993
