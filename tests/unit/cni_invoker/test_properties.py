# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whatever comes from outside becomes a value or a typed error.

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
    parse_configuration,
    parse_result,
)
from cni_invoker.caching.libcni_record import parse_record
from cni_invoker.execution.execute import _find_error
from cni_invoker.execution.request import Requests
from cni_invoker.verbs import Verb
from cni_invoker.versions import parse_version_info
from spec import JsonError, JsonObject, JsonValue, find_str, get_str, parse_json, render_json

FLAT: Final = ("0.1.0", "0.2.0")
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
