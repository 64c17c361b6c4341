# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whatever comes from outside becomes a value or a typed error; what the specification calls lossless is.

Documents are made in two ways: of anything under the keys that CNI knows, which seldom is what it should be; and of
what it should be, with one value somewhere replaced by anything, which nearly is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_invoker import (
    SUPPORTED_VERSIONS,
    Attachment,
    BadConfiguration,
    BadResult,
    InvalidParameter,
    NetworkConfigurationList,
    Result,
    convert_result,
    parse_configuration,
    parse_result,
)
from cni_invoker.execute import _find_error
from cni_invoker.libcni_record import parse_record
from cni_invoker.request import Requests
from cni_invoker.verbs import Verb
from cni_invoker.versions import parse_version_info
from spec import JsonError, JsonObject, JsonValue, find_str, get_str, parse_json, render_json

FLAT: Final = ("0.1.0", "0.2.0")
LISTS: Final = ("0.3.0", "0.3.1", "0.4.0")
PLAIN: Final = ("1.0.0", "1.1.0")

TEXTS: Final = (
    "",
    "1.0.0",
    "0.3.0",
    "9.9.9",
    "10.1.0.9/24",
    "10.1.0.9",
    "fd00::9/64",
    "::",
    "0.0.0.0/0",
    "true",
    "x/y",
)
KEYS: Final = (
    *("name", "type", "cniVersion", "cniVersions", "plugins", "capabilities", "ipam", "disableCheck", "disableGC"),
    *("loadOnlyInlinedPlugins", "prevResult", "runtimeConfig", "cni.dev/attachments", "args"),
    *("interfaces", "ips", "ip", "ip4", "ip6", "routes", "dns", "mac", "sandbox", "mtu", "address", "gateway"),
    *("interface", "version", "dst", "gw", "nameservers", "domain", "search", "options", "supportedVersions"),
    *("code", "msg", "details", "kind", "containerId", "config", "ifName", "networkName", "netns", "cniArgs"),
    *("capabilityArgs", "result", "bootId"),
)
LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(TEXTS)
)
JSON: Final[st.SearchStrategy[JsonValue]] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)

LIST: Final[JsonObject] = {
    "name": "net",
    "cniVersion": "1.0.0",
    "cniVersions": ["0.4.0", "1.1.0"],
    "disableCheck": False,
    "disableGC": "true",
    "loadOnlyInlinedPlugins": True,
    "plugins": [
        {"type": "bridge", "capabilities": {"mac": True}, "ipam": {"type": "host-local", "routes": [{"dst": "::/0"}]}},
        {"type": "portmap", "capabilities": {"portMappings": True}, "args": {"cni": {}}},
    ],
}
RESULT: Final[JsonObject] = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/c1", "mtu": 1500}],
    "ips": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1", "interface": 0}, {"address": "fd00::9/64"}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1", "mtu": 1400, "scope": 253}, {"dst": "::/0"}],
    "dns": {"nameservers": ["10.1.0.1"], "domain": "example.org", "search": ["a"], "options": ["ndots:1"]},
}
OLD_RESULT: Final[JsonObject] = {
    "cniVersion": "0.2.0",
    "ip4": {"ip": "10.1.0.9/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
    "ip6": {"ip": "fd00::9/64", "routes": [{"dst": "::/0"}]},
    "dns": {"nameservers": ["10.1.0.1"]},
}
ERROR: Final[JsonObject] = {"cniVersion": "1.0.0", "code": 7, "msg": "m", "details": "d"}
VERSION: Final[JsonObject] = {"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}
RECORD: Final[JsonObject] = {
    "kind": "cniCacheV1",
    "containerId": "c1",
    "config": "e30=",
    "ifName": "eth0",
    "networkName": "net",
    "netns": "/run/netns/c1",
    "cniArgs": [["K", "V"]],
    "capabilityArgs": {},
    "result": RESULT,
    "bootId": "b",
}


def places(value: JsonValue, way: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the way to each value in a document, the document itself first."""
    found = [way]
    if isinstance(value, Mapping):
        for key, inner in value.items():
            found += places(inner, (*way, key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, inner in enumerate(value):
            found += places(inner, (*way, number))
    return found


def replaced(value: JsonValue, way: tuple[str | int, ...], by: JsonValue) -> JsonValue:
    """Return a document with another value at one place."""
    if not way:
        return by
    step, *further = way
    if isinstance(value, Mapping):
        assert isinstance(step, str)
        return {**value, step: replaced(value[step], tuple(further), by)}
    assert isinstance(value, list)
    assert isinstance(step, int)
    return [replaced(inner, tuple(further), by) if number == step else inner for number, inner in enumerate(value)]


def documents(*good: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Give anything, and what is good but for one value."""
    nearly = st.sampled_from(good).flatmap(
        lambda document: st.builds(replaced, st.just(document), st.sampled_from(places(document)), JSON)
    )
    return nearly | JSON


@given(documents(LIST), JSON)
def test_any_json_as_a_configuration(document: JsonValue, capability_args: JsonValue) -> None:
    """It is a list or BadConfiguration; a list can be read again, and its plugins can be asked anything."""
    try:
        network = NetworkConfigurationList.from_document(document)
    except BadConfiguration:
        return
    assert NetworkConfigurationList.from_document(network.document) == network
    arguments = capability_args if isinstance(capability_args, dict) else {"mac": capability_args}
    attachment = Attachment(container_id="c1", ifname="eth0", netns="", capability_args=arguments)
    requests = Requests(plugin_dirs=(Path("/opt/cni/bin"),), environment={})
    for plugin in network.plugins:
        for request in (
            requests.attachment(Verb.ADD, network, plugin, attachment, None),
            requests.gc(network, plugin, [attachment.key]),
            requests.status(network, plugin),
        ):
            stdin = parse_json(request.stdin)
            assert isinstance(stdin, dict)
            assert (stdin["name"], stdin["type"]) == (network.name, plugin.type)
            assert "prevResult" not in stdin


@given(
    documents(LIST, *({"name": "n", "type": kind} for kind in ("bridge", "x"))), st.sampled_from(["conflist", "conf"])
)
def test_any_json_in_a_file(document: JsonValue, suffix: str) -> None:
    """A file is a list or BadConfiguration, which names the file."""
    file = Path(f"/etc/cni/net.d/10-any.{suffix}")
    try:
        found: NetworkConfigurationList | BadConfiguration = parse_configuration(render_json(document), file)
    except BadConfiguration as exc:
        found = exc
    if isinstance(found, BadConfiguration):
        assert str(found).startswith(str(found.file))
        assert found.file == file
    else:
        assert found.source == file


@given(documents(RESULT, OLD_RESULT), st.sampled_from(SUPPORTED_VERSIONS))
def test_any_json_as_a_result(document: JsonValue, version: str) -> None:
    """It is a result or BadResult; a result can be read again, and said in any version or not at all."""
    try:
        result = parse_result(render_json(document), version)
    except BadResult:
        return
    assert Result.from_document(result.document) == result
    for other in SUPPORTED_VERSIONS:
        try:
            converted = result.converted(other)
        except BadResult:
            assert other in FLAT
            continue
        assert converted.cni_version == converted.document["cniVersion"] == other
        assert converted.dns == result.dns


@given(documents(ERROR), st.binary(max_size=20))
def test_any_json_as_an_error(document: JsonValue, noise: bytes) -> None:
    """What a plugin prints when it fails has an error in it, with a message, or none."""
    error = _find_error(noise + render_json(document))
    if error is not None:
        get_str(error, "msg")
        find_str(error, "details")
        if error.get("code") is not None:
            assert isinstance(error["code"], int | float)


@given(documents(VERSION))
def test_any_json_as_an_answer_to_version(document: JsonValue) -> None:
    """It names versions, or is BadResult."""
    try:
        info = parse_version_info(render_json(document))
    except BadResult:
        return
    assert info.supported


@given(documents(RECORD))
def test_any_json_as_a_file_of_the_cache(document: JsonValue) -> None:
    """It is an attachment, the bare result of old, or an error of JSON, which the cache tells as damage."""
    try:
        parse_record(render_json(document))
    except JsonError:
        return


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    """What is no JSON at all is no result, no answer to VERSION, and has no error in it."""
    with pytest.raises(BadResult):
        parse_result(b"\xff" + data, "1.0.0")
    with pytest.raises(BadResult):
        parse_version_info(b"\xff" + data)
    with pytest.raises(BadConfiguration):
        parse_configuration(b"\xff" + data, Path("/etc/cni/net.d/10-any.conflist"))


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_any_text_as_a_name(container_id: str, ifname: str, key: str) -> None:
    """An attachment can be made of it, and then be handed to a process, or InvalidParameter is raised."""
    try:
        attachment = Attachment(container_id=container_id, ifname=ifname, netns=container_id, args=((key, ifname),))
    except InvalidParameter:
        return
    for text in (attachment.container_id, attachment.ifname, attachment.netns, key):
        assert "\0" not in text
        text.encode()


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
