# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A result of any version in every other one."""

from itertools import product

import pytest

from cni_invoker import SUPPORTED_VERSIONS, BadResult, Result, convert_result
from spec import JsonObject

DNS: JsonObject = {"nameservers": ["1.2.3.4"], "domain": "example.com"}
PLAIN: JsonObject = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "br0", "mac": "00:11:22:33:44:55"},
        {"name": "eth0", "sandbox": "/n", "mtu": 1400, "socketPath": "/s", "pciID": "8086:9a01", "x": 1},
    ],
    "ips": [
        {"interface": 1, "address": "10.1.0.9/24", "gateway": "10.1.0.1"},
        {"interface": 0, "address": "fd00::9/64"},
        {"address": "10.2.0.9/24", "gateway": "10.2.0.1"},
    ],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1300, "table": 7}, {"dst": "fd01::/64"}],
    "dns": DNS,
    "x": {"y": 1},
}
LISTS: JsonObject = {
    **PLAIN,
    "cniVersion": "0.4.0",
    "interfaces": [{"name": "br0", "mac": "00:11:22:33:44:55"}, {"name": "eth0", "sandbox": "/n", "x": 1}],
    "ips": [
        {"interface": 1, "address": "10.1.0.9/24", "gateway": "10.1.0.1", "version": "4"},
        {"interface": 0, "address": "fd00::9/64", "version": "6"},
        {"address": "10.2.0.9/24", "gateway": "10.2.0.1", "version": "4"},
    ],
}
FLAT: JsonObject = {
    "cniVersion": "0.2.0",
    "dns": DNS,
    "x": {"y": 1},
    "ip4": {"ip": "10.1.0.9/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
    "ip6": {"ip": "fd00::9/64", "routes": [{"dst": "fd01::/64"}]},
}
LISTS_OF_FLAT: JsonObject = {
    "cniVersion": "0.4.0",
    "dns": DNS,
    "x": {"y": 1},
    "ips": [
        {"version": "4", "address": "10.1.0.9/24", "gateway": "10.1.0.1"},
        {"version": "6", "address": "fd00::9/64"},
    ],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}, {"dst": "fd01::/64"}],
}


def of(version: str, document: JsonObject) -> JsonObject:
    """Return a document under the name of another version."""
    return {**document, "cniVersion": version}


@pytest.mark.parametrize(
    ("document", "version", "converted"),
    [
        (PLAIN, "1.1.0", PLAIN),
        (PLAIN, "1.0.0", of("1.0.0", PLAIN)),
        (PLAIN, "0.4.0", LISTS),
        (PLAIN, "0.3.0", of("0.3.0", LISTS)),
        (PLAIN, "0.2.0", FLAT),
        (PLAIN, "0.1.0", of("0.1.0", FLAT)),
        (LISTS, "0.3.1", of("0.3.1", LISTS)),
        (LISTS, "0.2.0", FLAT),
        (FLAT, "0.1.0", of("0.1.0", FLAT)),
        (FLAT, "0.4.0", LISTS_OF_FLAT),
    ],
)
def test_conversions(document: JsonObject, version: str, converted: JsonObject) -> None:
    """Each version says what it can; what it cannot is lost, unknown keys are not."""
    assert convert_result(document, version) == converted


def test_from_lists_to_plain() -> None:
    """From 1.0.0 on addresses do not tell their IP version."""
    made = convert_result(LISTS, "1.0.0")
    assert made["ips"] == PLAIN["ips"]
    assert (made["interfaces"], made["routes"]) == (LISTS["interfaces"], LISTS["routes"])


def test_the_first_address_comes_first_up_to_0_2_0() -> None:
    """IPv4 comes first on the way up, whatever the order of keys."""
    made = convert_result({"cniVersion": "0.2.0", "ip6": {"ip": "fd00::9/64"}, "ip4": {"ip": "10.1.0.9/24"}}, "1.0.0")
    assert made["ips"] == [{"address": "10.1.0.9/24"}, {"address": "fd00::9/64"}]


def test_routes_without_an_address_of_their_family_are_lost_in_0_2_0() -> None:
    """There is no place for them."""
    made = convert_result(
        {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}], "routes": [{"dst": "::/0"}]}, "0.2.0"
    )
    assert made == {"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.9/24"}}


def test_without_an_address_there_is_no_0_2_0() -> None:
    """What has no address cannot be said before 0.3.0."""
    with pytest.raises(BadResult, match="cannot convert: no valid IP addresses"):
        convert_result({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}]}, "0.2.0")


def test_the_other_key_of_0_3_0() -> None:
    """The text of 0.3.0 called `ips` `ip`."""
    document: JsonObject = {"cniVersion": "0.3.0", "ip": [{"version": "4", "address": "10.1.0.9/24"}]}
    assert convert_result(document, "0.3.0") is document
    assert convert_result(document, "0.3.1") == {"cniVersion": "0.3.1", "ips": document["ip"]}
    assert convert_result(document, "1.0.0") == {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}]}


@pytest.mark.parametrize(
    ("version", "interface"), [(version, index) for version in ("0.4.0", "1.0.0") for index in (0, 1, None, -1)]
)
def test_indices_stay(version: str, interface: int | None) -> None:
    """The first interface is not the same as none."""
    told = {} if interface is None else {"interface": interface}
    made = convert_result({"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24", **told}]}, version)
    assert isinstance(made["ips"], list)
    assert {key: value for key, value in made["ips"][0].items() if key == "interface"} == told


@pytest.mark.parametrize(("older", "newer"), list(product(SUPPORTED_VERSIONS, SUPPORTED_VERSIONS)))
def test_what_an_older_version_says_a_newer_one_says_as_well(older: str, newer: str) -> None:
    """There and back again nothing is lost, if it is the newer one that lies in between; the typed view agrees."""
    document = convert_result(PLAIN, older)
    made = convert_result(document, newer)
    assert made["cniVersion"] == newer
    if SUPPORTED_VERSIONS.index(older) <= SUPPORTED_VERSIONS.index(newer):
        assert convert_result(made, older) == document
        one, other = Result.from_document(document), Result.from_document(document).converted(newer)
        assert (other.ips, other.routes, other.dns, other.cni_version) == (one.ips, one.routes, one.dns, newer)


@pytest.mark.parametrize(("own", "version"), [("1.1.0", "0.4567.0"), ("0.4567.0", "1.1.0"), ("1.1.0", "")])
def test_unknown_versions(own: str, version: str) -> None:
    """A version nobody knows is an error, as in libcni."""
    with pytest.raises(BadResult, match='unsupported CNI result version "'):
        convert_result({"cniVersion": own}, version)


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_null_is_absent(version: str) -> None:
    """Go prints null for what was never set."""
    nothing: JsonObject = {"cniVersion": "1.0.0", "interfaces": None, "routes": None, "dns": None}
    document: JsonObject = {**nothing, "ips": [{"address": "10.1.0.9/24", "gateway": None}]}
    made = Result.from_document(document).converted(version)
    assert [str(ip.address) for ip in made.ips] == ["10.1.0.9/24"]
    flat = Result.from_document({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.9/24", "routes": None}, "ip6": None})
    assert [str(ip.address) for ip in flat.converted(version).ips] == ["10.1.0.9/24"]
