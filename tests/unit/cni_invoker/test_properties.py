# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Any input becomes a value or a typed error.

Documents are made in two ways: arbitrary values under the keys of CNI, which are seldom valid; and valid documents with
one value replaced by an arbitrary one, which are nearly valid.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, find_str, parse_json, render_json
from cni_invoker import SUPPORTED_VERSIONS, Attachment, NetworkConfigurationList, Result
from cni_invoker.advanced import parse_configuration, parse_result
from cni_invoker.documents.request import Requests
from cni_invoker.documents.versions import Verb, parse_version_info
from cni_invoker.errors import BadConfiguration, BadResult, InvalidParameter
from cni_invoker.execution.answer import find_error

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


def find_paths(value: JsonValue, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of each value in a document, the document itself first."""
    found = [path]
    if isinstance(value, Mapping):
        for key, inner in value.items():
            found += find_paths(inner, (*path, key))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, inner in enumerate(value):
            found += find_paths(inner, (*path, number))
    return found


def replace_at(value: JsonValue, path: tuple[str | int, ...], by: JsonValue) -> JsonValue:
    """Return a document with another value at one path."""
    if not path:
        return by
    step, *further = path
    if isinstance(value, Mapping):
        assert isinstance(step, str)
        return {**value, step: replace_at(value[step], tuple(further), by)}
    assert isinstance(value, list)
    assert isinstance(step, int)
    return [replace_at(inner, tuple(further), by) if number == step else inner for number, inner in enumerate(value)]


def documents(*good: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Return a strategy for arbitrary documents, and for valid ones with one value replaced."""
    nearly = st.sampled_from(good).flatmap(
        lambda document: st.builds(replace_at, st.just(document), st.sampled_from(find_paths(document)), JSON)
    )
    return nearly | JSON


@given(documents(LIST), JSON)
def test_any_json_is_a_list_or_bad_configuration(document: JsonValue, capability_args: JsonValue) -> None:
    """A list can be parsed again from its document, and every request of its plugins can be rendered."""
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
def test_any_json_file_is_a_list_or_bad_configuration(document: JsonValue, suffix: str) -> None:
    """The error names the file."""
    file = Path(f"/etc/cni/net.d/10-any.{suffix}")
    try:
        found: NetworkConfigurationList | BadConfiguration = parse_configuration(render_json(document), file)
    except BadConfiguration as exc:
        found = exc
    if isinstance(found, BadConfiguration):
        assert f": {found.file}" in str(found)
        assert found.file == file
    else:
        assert found.source == file


@given(documents(RESULT, OLD_RESULT), st.sampled_from(SUPPORTED_VERSIONS))
def test_any_json_is_a_result_or_bad_result(document: JsonValue, version: str) -> None:
    """A result can be parsed again, and converts to any version; only for 0.2.0 or older that may be BadResult."""
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
def test_any_json_is_a_cni_error_or_none(document: JsonValue, noise: bytes) -> None:
    """A CNI error that is found in the output of a failed plugin has a message or a code."""
    error = find_error(noise + render_json(document))
    if error is not None:
        assert find_str(error, "msg") or isinstance(error["code"], int)
        find_str(error, "details")


@given(documents(VERSION))
def test_any_json_is_version_info_or_bad_result(document: JsonValue) -> None:
    """Version info names at least one version."""
    try:
        info = parse_version_info(render_json(document))
    except BadResult:
        return
    assert info.supported


@given(st.binary(max_size=60))
def test_bytes_that_are_not_utf8_are_errors(data: bytes) -> None:
    """They are no result, no version info and no configuration."""
    with pytest.raises(BadResult):
        parse_result(b"\xff" + data, "1.0.0")
    with pytest.raises(BadResult):
        parse_version_info(b"\xff" + data)
    with pytest.raises(BadConfiguration):
        parse_configuration(b"\xff" + data, Path("/etc/cni/net.d/10-any.conflist"))


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_valid_name_or_invalid_parameter(container_id: str, ifname: str, key: str) -> None:
    """The strings of a valid attachment can be passed to a process."""
    try:
        attachment = Attachment(container_id=container_id, ifname=ifname, netns=container_id, args=((key, ifname),))
    except InvalidParameter:
        return
    for text in (attachment.container_id, attachment.ifname, attachment.netns, key):
        assert "\0" not in text
        text.encode()
