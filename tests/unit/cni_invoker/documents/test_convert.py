# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Conversion of results between all versions."""

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import SUPPORTED_VERSIONS, Result
from cni_invoker.advanced import convert_result
from cni_invoker.errors import BadResult

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
    """Return a document with another version."""
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
def test_results_are_converted_between_all_versions(document: JsonObject, version: str, converted: JsonObject) -> None:
    """Keys that the other version does not have are dropped; unknown keys are kept."""
    assert convert_result(document, version) == converted


def test_addresses_have_no_version_from_1_0_0_on() -> None:
    """The key `version` of an address is removed."""
    made = convert_result(LISTS, "1.0.0")
    assert made["ips"] == PLAIN["ips"]
    assert (made["interfaces"], made["routes"]) == (LISTS["interfaces"], LISTS["routes"])


def test_ipv4_comes_first_in_conversions_from_0_2_0() -> None:
    """The order of the keys `ip4` and `ip6` does not matter."""
    made = convert_result({"cniVersion": "0.2.0", "ip6": {"ip": "fd00::9/64"}, "ip4": {"ip": "10.1.0.9/24"}}, "1.0.0")
    assert made["ips"] == [{"address": "10.1.0.9/24"}, {"address": "fd00::9/64"}]


def test_routes_without_an_address_of_their_family_are_dropped_in_0_2_0() -> None:
    """0.2.0 has routes only together with an address."""
    made = convert_result(
        {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}], "routes": [{"dst": "::/0"}]}, "0.2.0"
    )
    assert made == {"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.9/24"}}


def test_a_result_without_addresses_cannot_be_converted_to_0_2_0() -> None:
    """Such a result cannot be represented before 0.3.0."""
    with pytest.raises(BadResult, match="cannot convert: no valid IP addresses"):
        convert_result({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}]}, "0.2.0")


def test_the_key_ip_of_0_3_0_is_converted() -> None:
    """SPEC 0.3.0 calls `ips` `ip`."""
    document: JsonObject = {"cniVersion": "0.3.0", "ip": [{"version": "4", "address": "10.1.0.9/24"}]}
    assert convert_result(document, "0.3.0") is document
    assert convert_result(document, "0.3.1") == {"cniVersion": "0.3.1", "ips": document["ip"]}
    assert convert_result(document, "1.0.0") == {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}]}


@pytest.mark.parametrize(("own", "version"), [("1.1.0", "0.4567.0"), ("0.4567.0", "1.1.0"), ("1.1.0", "")])
def test_unknown_versions_are_rejected(own: str, version: str) -> None:
    """As in libcni, a version that is not supported is an error."""
    with pytest.raises(BadResult, match='unsupported CNI result version "'):
        convert_result({"cniVersion": own}, version)


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_null_is_absent(version: str) -> None:
    """Go prints null for unset fields; null is treated as a missing key."""
    nothing: JsonObject = {"cniVersion": "1.0.0", "interfaces": None, "routes": None, "dns": None}
    document: JsonObject = {**nothing, "ips": [{"address": "10.1.0.9/24", "gateway": None}]}
    made = Result.from_document(document).converted(version)
    assert [str(ip.address) for ip in made.ips] == ["10.1.0.9/24"]
    flat = Result.from_document({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.9/24", "routes": None}, "ip6": None})
    assert [str(ip.address) for ip in flat.converted(version).ips] == ["10.1.0.9/24"]
