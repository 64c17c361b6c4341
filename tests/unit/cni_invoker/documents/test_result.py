# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Results of every version of the SPEC, and output that is not a result."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

import pytest

from cni_bridge_spec import JsonObject, get_objects, render_json
from cni_invoker import Result
from cni_invoker.advanced import parse_result
from cni_invoker.errors import BadResult

BRIDGE: JsonObject = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "cni0", "mac": "0a:00:00:00:00:01"},
        {"name": "veth1", "mac": "0a:00:00:00:00:02"},
        {
            "name": "eth0",
            "mac": "0a:00:00:00:00:03",
            "sandbox": "/run/netns/c1",
            "mtu": 1400,
            "socketPath": "/s",
            "pciID": "0000:04:00.5",
        },
    ],
    "ips": [
        {"address": "10.1.0.9/24", "gateway": "10.1.0.1", "interface": 2},
        {"address": "fd00::9/64", "gateway": "fd00::1", "interface": 2},
    ],
    "routes": [
        {"dst": "0.0.0.0/0"},
        {"dst": "fd01::/16", "gw": "fd00::2", "mtu": 1300, "advmss": 1200, "priority": 7, "table": 100, "scope": 253},
    ],
    "dns": {"nameservers": ["10.1.0.1"], "domain": "example", "search": ["a", "b"], "options": ["ndots:2"]},
    "unknown": [1],
}


@pytest.mark.parametrize("version", ["0.2.0", "0.4.0", "1.1.0"])
@pytest.mark.parametrize(
    "dns",
    [
        {"nameservers": ["10.1.0.1\nnameserver 192.0.2.1"]},
        {"domain": "example\r"},
        {"search": ["a", "b\noptions rotate"]},
        {"options": ["ndots:2\x0bx"]},
        {"search": ["a\u2028b"]},
    ],
)
def test_a_line_break_in_a_value_for_resolv_conf(version: str, dns: JsonObject) -> None:
    """It would add a line to the file, so that is no result; the error names the value."""
    (key,) = dns
    with pytest.raises(BadResult, match=rf"dns\.{key}: '.*' has a line break or another control character"):
        Result.from_document({"cniVersion": version, "ips": [], "dns": dns})


def test_a_result_of_1_1_0_is_parsed() -> None:
    """Every key of the newest version has a typed field."""
    result = Result.from_document(BRIDGE)
    eth0 = result.interfaces[2]
    assert [interface.name for interface in result.interfaces] == ["cni0", "veth1", "eth0"]
    assert (eth0.mac, eth0.sandbox, eth0.mtu) == ("0a:00:00:00:00:03", "/run/netns/c1", 1400)
    assert (eth0.socket_path, eth0.pci_id) == ("/s", "0000:04:00.5")
    assert [(ip.address, ip.gateway, ip.interface) for ip in result.ips] == [
        (IPv4Interface("10.1.0.9/24"), IPv4Address("10.1.0.1"), 2),
        (IPv6Interface("fd00::9/64"), IPv6Address("fd00::1"), 2),
    ]
    default, other = result.routes
    assert (default.dst, default.gw, default.table) == (IPv4Network("0.0.0.0/0"), None, None)
    assert (other.dst, other.gw) == (IPv6Network("fd01::/16"), IPv6Address("fd00::2"))
    assert (other.mtu, other.advmss, other.priority, other.table, other.scope) == (1300, 1200, 7, 100, 253)
    assert result.dns.nameservers == ("10.1.0.1",)
    assert (result.dns.domain, result.dns.search, result.dns.options) == ("example", ("a", "b"), ("ndots:2",))


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_result_older_than_0_3_0_is_parsed(version: str) -> None:
    """It has one address of each family, IPv4 first, with the routes of each."""
    result = Result.from_document(
        {
            "cniVersion": version,
            "ip6": {"ip": "fd00::9/64", "routes": [{"dst": "::/0", "gw": "fd00::1"}]},
            "ip4": {"ip": "10.1.0.9/24", "gateway": "10.1.0.1", "routes": [{"dst": "10.2.0.0/16"}]},
            "dns": {"domain": "example"},
        }
    )
    assert [(str(ip.address), ip.gateway, ip.interface) for ip in result.ips] == [
        ("10.1.0.9/24", IPv4Address("10.1.0.1"), None),
        ("fd00::9/64", None, None),
    ]
    assert [str(route.dst) for route in result.routes] == ["10.2.0.0/16", "::/0"]
    assert (result.interfaces, result.dns.domain) == ((), "example")


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0"])
def test_the_version_of_an_address_is_ignored(version: str) -> None:
    """The family comes from the address; SPEC 1.0.0 removed the key `version`."""
    result = Result.from_document({"cniVersion": version, "ips": [{"version": "4", "address": "1.2.3.30/24"}]})
    assert [ip.address for ip in result.ips] == [IPv4Interface("1.2.3.30/24")]


@pytest.mark.parametrize(("version", "addresses"), [("0.3.0", 1), ("0.3.1", 0)])
def test_the_key_ip_of_0_3_0_is_parsed(version: str, addresses: int) -> None:
    """SPEC 0.3.0 calls `ips` `ip`, and only that version does."""
    result = Result.from_document({"cniVersion": version, "ip": [{"address": "1.2.3.30/24"}]})
    assert len(result.ips) == addresses


@pytest.mark.parametrize("version", [None, ""])
def test_a_missing_version_is_that_of_the_configuration(version: str | None) -> None:
    """The version is added to the document, too."""
    result = Result.from_document(
        {"cniVersion": version, "ips": [{"version": "4", "address": "1.2.3.4/24"}]}, cni_version="0.3.1"
    )
    assert result.cni_version == "0.3.1"
    assert result.document["cniVersion"] == "0.3.1"


@pytest.mark.parametrize("address", ["::ffff:10.1.0.9", "::FFFF:a01:9"])
def test_an_ipv4_address_that_is_written_as_ipv6(address: str) -> None:
    """It is an IPv4 address, as in Go, also in older forms of the result; a shorter prefix makes it IPv6."""
    ip = {"address": f"{address}/120", "gateway": "::ffff:10.1.0.1"}
    result = Result.from_document({"cniVersion": "1.0.0", "ips": [ip]})
    assert str(result.ips[0].address) == "10.1.0.9/24"
    assert str(result.ips[0].gateway) == "10.1.0.1"
    assert result.document["ips"] == [ip]
    assert get_objects(result.converted("0.4.0").document, "ips")[0]["version"] == "4"
    assert "ip4" in result.converted("0.2.0").document
    (mapped,) = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": f"{address}/64"}]}).ips
    assert mapped.address.version == 6


def test_null_is_an_absent_key() -> None:
    """Go prints null for empty lists and strings."""
    result = Result.from_document(
        {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "mac": None, "sandbox": None}],
            "ips": [{"address": "10.1.0.9/24", "gateway": None, "interface": None}],
            "routes": None,
            "dns": None,
        }
    )
    assert (result.interfaces[0].sandbox, result.ips[0].gateway, result.routes) == ("", None, ())


@pytest.mark.parametrize(("index", "understood"), [(0, 0), (None, None), (-1, None), (1, None)])
def test_an_invalid_interface_index_is_absent(index: int | None, understood: int | None) -> None:
    """Index 0 is the first interface; an index that is not in the list means no interface."""
    result = Result.from_document(
        {"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.1.0.9/24", "interface": index}]},
        cni_version="1.0.0",
    )
    assert result.ips[0].interface == understood


def test_addresses_of_an_interface_include_unassigned_ones() -> None:
    """Addresses of other interfaces are left out; addresses without an interface are included."""
    result = Result.from_document(
        {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/n"}],
            "ips": [
                {"address": "10.1.0.9/24", "interface": 1},
                {"address": "10.1.0.1/24", "interface": 0},
                {"address": "fd00::9/64"},
            ],
        }
    )
    assert result.addresses_of("eth0") == (IPv4Interface("10.1.0.9/24"), IPv6Interface("fd00::9/64"))


@pytest.mark.parametrize(
    ("stdout", "reason"),
    [
        (b"", "plugin returned no result"),
        (b" \n", "plugin returned no result"),
        (b"garbage", "line 1, column 1: Expecting value"),
        (b'{"ips": [', "line 1, column 10"),
        (b"{}{}", "Extra data"),
        (b"[]", "the document must be an object"),
        (b'{"cniVersion": "0.4567.0"}', 'unsupported CNI result version "0.4567.0"'),
        (b'{"ips": [{}]}', r"ips\[0\].address is missing"),
        (b'{"ips": [{"address": "10.1.0.9"}]}', "10.1.0.9"),
        (b'{"ips": [{"address": "10.1.0.9/255.255.255.0"}]}', "10.1.0.9/255.255.255.0"),
        (b'{"ips": [{"address": "10.1.0.9/99"}]}', "10.1.0.9/99"),
        (b'{"ips": [{"address": "10.1.0.9/24", "gateway": "here"}]}', "here"),
        (b'{"routes": [{"dst": "default"}]}', "default"),
        (b'{"interfaces": [{"mtu": 1400.5}]}', "mtu"),
        (b'{"code": 7, "msg": "no such master"}', "code 7: no such master"),
    ],
)
def test_invalid_output_is_rejected_with_the_reason(stdout: bytes, reason: str) -> None:
    """The error has code 6 (failed to decode content)."""
    with pytest.raises(BadResult, match=reason) as caught:
        parse_result(stdout, "1.0.0")
    assert caught.value.code == 6


def test_the_entries_of_a_result_can_be_limited() -> None:
    """Links, addresses and routes are counted together."""
    printed = render_json(BRIDGE)
    assert parse_result(printed, "1.1.0", entries=7) == parse_result(printed, "1.1.0")
    with pytest.raises(BadResult, match="3 links, 2 addresses, 2 routes: a result may have 6 of them together"):
        parse_result(printed, "1.1.0", entries=6)
