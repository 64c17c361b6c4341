# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about results: their version, their meaning, and their conversion to another version."""

from collections.abc import Mapping
from typing import Final

import pytest

from cni_bridge_spec import (
    JsonObject,
    JsonValue,
    get_list,
    get_object,
    get_objects,
    get_str,
    get_strings,
    parse_json,
    render_json,
)
from cni_invoker import Result
from cni_invoker.advanced import convert_result
from cni_invoker.errors import BadResult
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network

__all__ = ["RUNNERS"]

FULL: Final[JsonObject] = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {
            "name": "eth0",
            "mac": "00:11:22:33:44:55",
            "mtu": 1500,
            "sandbox": "/run/netns/c1",
            "pciID": "8086:9a01",
            "socketPath": "/path/to/vhost/fd",
        }
    ],
    "ips": [
        {"interface": 0, "address": "1.2.3.30/24", "gateway": "1.2.3.1"},
        {"interface": 0, "address": "1.2.4.30/24"},
        {"interface": 0, "address": "abcd:1234:ffff::cdde/64", "gateway": "abcd:1234:ffff::1"},
    ],
    "routes": [
        {"dst": "15.5.6.0/24", "gw": "15.5.6.8", "mtu": 1400},
        {"dst": "1111:dddd::/80", "gw": "1111:dddd::aaaa"},
    ],
    "dns": {"nameservers": ["1.2.3.4", "1::cafe"], "domain": "acompany.com", "search": ["s"], "options": ["foo"]},
}


async def printed(case: Case, scene: Scene) -> None:
    """A result without a version has the configuration's version."""
    version = get_str(case.inputs, "config_version")
    for extra in ({}, {"cniVersion": ""}):
        scene.install("foo", ADD={"result": {**get_object(case.plugin, "stdout"), **extra}})
        result = await scene.runtime().add(network({"type": "foo"}, version=version), ATTACHMENT)
        assert result.cni_version == result.document["cniVersion"] == case.expect["result_version"]
        assert [str(ip.address) for ip in result.ips] == ["1.2.3.4/24"]


async def null(case: Case, scene: Scene) -> None:
    """`null` is an empty result."""
    scene.install("foo", ADD={"stdout": case.plugin["stdout"]})
    result = await scene.runtime().add(network({"type": "foo"}, version="0.4.0"), ATTACHMENT)
    assert (result.cni_version, result.interfaces, result.ips, result.routes) == ("0.4.0", (), (), ())


async def unknown_version(case: Case, scene: Scene) -> None:
    """A result of an unknown version is refused."""
    scene.install("foo", ADD={"result": case.plugin["stdout"]})
    with pytest.raises(BadResult) as caught:
        await scene.runtime().add(network({"type": "foo"}), ATTACHMENT)
    case.expects("error_text", str(caught.value))


async def kept_fields(case: Case, _: Scene) -> None:
    """The fields that 1.1.0 added to interfaces are kept when a result is stored."""
    assert case.expect["round_trip"] is True
    (interface,) = get_objects(FULL, "interfaces")
    assert set(get_strings(case.inputs, "fields")) <= set(interface)
    result = Result.from_document(FULL)
    stored = Result.from_document(parse_json(render_json(result.document)))
    assert stored == result
    assert stored.document == FULL
    (found,) = stored.interfaces
    assert (found.mtu, found.pci_id, found.socket_path) == (1500, "8086:9a01", "/path/to/vhost/fd")


async def down_to_0_1_0(case: Case, _: Scene) -> None:
    """The result keeps the first address of each family, with the routes of its family, and no interfaces."""
    assert convert_result(FULL, get_str(case.inputs, "to")) == {
        "cniVersion": "0.1.0",
        "ip4": {
            "ip": "1.2.3.30/24",
            "gateway": "1.2.3.1",
            "routes": [{"dst": "15.5.6.0/24", "gw": "15.5.6.8"}],
        },
        "ip6": {
            "ip": "abcd:1234:ffff::cdde/64",
            "gateway": "abcd:1234:ffff::1",
            "routes": [{"dst": "1111:dddd::/80", "gw": "1111:dddd::aaaa"}],
        },
        "dns": FULL["dns"],
    }


async def down_to_0_4_0(case: Case, _: Scene) -> None:
    """Addresses have their family, and interfaces only the fields of 0.4.0."""
    found = convert_result(FULL, get_str(case.inputs, "to"))
    assert [ip["version"] for ip in get_objects(found, "ips")] == ["4", "4", "6"]
    assert found["interfaces"] == [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/run/netns/c1"}]


async def there_and_back(case: Case, _: Scene) -> None:
    """A result of 0.2.0 is unchanged after conversion to 0.4.0 and back, with and without gateways of routes."""
    assert case.expect["lossless"] is True
    to, back = get_str(case.inputs, "to"), get_str(case.inputs, "back")
    for gateway in ({"gw": "15.5.6.8"}, {}):
        document: JsonObject = {
            "cniVersion": get_str(case.inputs, "from"),
            "ip4": {"ip": "1.2.3.30/24", "gateway": "1.2.3.1", "routes": [{"dst": "15.5.6.0/24", **gateway}]},
            "ip6": {"ip": "abcd:1234:ffff::cdde/64", "routes": [{"dst": "1111:dddd::/80"}]},
            "dns": FULL["dns"],
        }
        newer = convert_result(document, to)
        assert [ip["version"] for ip in get_objects(newer, "ips")] == ["4", "6"]
        assert "interfaces" not in newer
        assert convert_result(newer, back) == document


async def oldest(_: Case, __: Scene) -> None:
    """The form of 0.1.0 is that of 0.2.0; a result without a version is of 0.1.0."""
    document: JsonObject = {"cniVersion": "0.2.0", "ip4": {"ip": "1.2.3.30/24"}, "dns": {}}
    assert convert_result(document, "0.1.0") == {**document, "cniVersion": "0.1.0"}
    nameless = Result.from_document({"ip4": {"ip": "1.2.3.30/24"}})
    assert nameless.cni_version == nameless.document["cniVersion"] == "0.1.0"


async def interface_index(case: Case, _: Scene) -> None:
    """Index 0 is an index, an absent one stays absent, and -1 means none."""
    understood: list[int | None] = []
    for index in (*get_list(case.inputs, "interface"), -1):
        ip: dict[str, JsonValue] = {"address": "1.2.3.4/24", **({} if index is None else {"interface": index})}
        result = Result.from_document({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": [ip]})
        understood.append(result.ips[0].interface)
        for version in ("0.3.1", "0.4.0"):
            (converted,) = get_objects(convert_result(result.document, version), "ips")
            assert ("interface" in converted) is (index is not None)
            assert converted.get("interface") == index
    assert understood == [0, None, None]


async def needless_version(case: Case, _: Scene) -> None:
    """From 1.0.0 on an address has no version; a given one is ignored."""
    assert case.expect["accepted"] is case.expect["version_ignored"] is True
    ip = get_object(case.inputs, "ips[0]")
    version = get_str(case.inputs, "version")
    result = Result.from_document({"cniVersion": version, "ips": [{**ip, "version": "6"}]})
    assert (str(result.ips[0].address), result.ips[0].address.version) == (ip["address"], 4)
    assert [ip["version"] for ip in get_objects(convert_result(result.document, "0.4.0"), "ips")] == ["4"]


async def misspelled(case: Case, _: Scene) -> None:
    """The key `ip` for addresses, as in the text of 0.3.0, is accepted in that version only."""
    assert get_str(case.expect, "improved").startswith("accept ip")
    ip: JsonValue = [{"version": "4", "address": "1.2.3.4/24"}]
    result = Result.from_document({"cniVersion": get_str(case.inputs, "version"), "ip": ip})
    assert [str(ip.address) for ip in result.ips] == ["1.2.3.4/24"]
    assert [ip["address"] for ip in get_objects(convert_result(result.document, "1.0.0"), "ips")] == ["1.2.3.4/24"]
    assert Result.from_document({"cniVersion": "0.3.1", "ip": ip}).ips == ()


RUNNERS: Final[Mapping[str, Runner]] = {
    "res-001": printed,
    "res-003": null,
    "res-004": unknown_version,
    "res-005": kept_fields,
    "res-007": down_to_0_1_0,
    "res-008": down_to_0_4_0,
    "res-010": there_and_back,
    "res-011": interface_index,
    "res-013": oldest,
    "res-014": needless_version,
    "res-016": misspelled,
}
