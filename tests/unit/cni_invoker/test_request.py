# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a plugin is given: environment and standard input."""

from pathlib import Path

import pytest

from cni_invoker import Attachment, NetworkConfigurationList, Result, Verb
from cni_invoker.request import Request, make_request
from spec import JsonObject, JsonValue, parse_json

ATTACHMENT = Attachment(container_id="some-container-id", ifname="eth7", netns="/some/netns/path")


def request(
    plugin: JsonObject,
    *,
    version: str = "1.1.0",
    attachment: Attachment = ATTACHMENT,
    prev_result: Result | None = None,
    verb: Verb = Verb.ADD,
) -> Request:
    """Make the request to a list's only plugin."""
    network = NetworkConfigurationList.from_document({"name": "net", "cniVersion": version, "plugins": [plugin]})
    return make_request(
        verb,
        network,
        network.plugins[0],
        attachment,
        prev_result=prev_result,
        plugin_dirs=(Path("/some/cni/path"), Path("/other")),
        environment={"CNI_COMMAND": "DEL", "CNI_IFNAME": "eth0", "CNI_NETNS": "testns", "PATH": "/bin", "TERM": "x"},
    )


def stdin(made: Request) -> JsonValue:
    """Return what the plugin reads."""
    return parse_json(made.stdin)


def test_environment() -> None:
    """CNI's variables are all there and win over inherited ones; everything else is inherited."""
    attachment = Attachment(
        container_id="some-container-id",
        ifname="eth7",
        netns="/some/netns/path",
        args=(("KEY1", "VALUE1"), ("KEY2", "VALUE2")),
    )
    assert request({"type": "noop"}, attachment=attachment).environment == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "some-container-id",
        "CNI_NETNS": "/some/netns/path",
        "CNI_IFNAME": "eth7",
        "CNI_ARGS": "KEY1=VALUE1;KEY2=VALUE2",
        "CNI_PATH": "/some/cni/path:/other",
        "PATH": "/bin",
        "TERM": "x",
    }


def test_name_and_version_are_the_lists() -> None:
    """A plugin is told the list's name and version, whatever stands in its own configuration; the rest stays."""
    plugin: JsonObject = {"type": "noop", "name": "mine", "cniVersion": "0.1.0", "some-key": {"ä": 9007199254740993}}
    assert stdin(request(plugin)) == {
        "type": "noop",
        "name": "net",
        "cniVersion": "1.1.0",
        "some-key": {"ä": 9007199254740993},
    }


def test_a_list_without_a_version_is_of_the_first() -> None:
    """No version on disk is 0.1.0 on the wire."""
    assert stdin(request({"type": "noop"}, version="")) == {"type": "noop", "name": "net", "cniVersion": "0.1.0"}


def test_runtime_config_has_what_the_plugin_declares() -> None:
    """A plugin is given the capability args it declares, and no others."""
    args: JsonObject = {"portMappings": [{"hostPort": 8080}], "mac": "c2:11:22:33:44:55", "ips": ["10.1.0.9"]}
    attachment = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args=args)
    plugin: JsonObject = {"type": "noop", "capabilities": {"portMappings": True, "mac": False, "bandwidth": True}}
    assert stdin(request(plugin, attachment=attachment)) == {
        "type": "noop",
        "name": "net",
        "cniVersion": "1.1.0",
        "runtimeConfig": {"portMappings": [{"hostPort": 8080}]},
    }


def test_runtime_config_is_absent_when_it_is_empty() -> None:
    """There is no empty `runtimeConfig`."""
    made = stdin(request({"type": "noop", "capabilities": {"portMappings": True}}))
    assert made == {"type": "noop", "name": "net", "cniVersion": "1.1.0"}


@pytest.mark.parametrize(("version", "kept"), [("0.4.0", True), ("1.0.0", False), ("1.1.0", False)])
def test_capabilities_are_dropped_from_1_0_0(version: str, kept: bool) -> None:
    """The text of 1.0.0 has `capabilities` removed; plugins of before get what they always got."""
    made = request({"type": "noop", "capabilities": {"mac": True}}, version=version)
    assert (b'"capabilities"' in made.stdin) is kept


def test_reserved_keys_are_the_runtimes() -> None:
    """What only the runtime may say does not come from a file; `args` does."""
    plugin: JsonObject = {
        "type": "noop",
        "prevResult": {"ips": []},
        "runtimeConfig": {"mac": "x"},
        "cni.dev/valid-attachments": [],
        "cni.dev/attachments": [],
        "args": {"cni": {"ips": ["10.2.2.42/24"]}},
    }
    assert stdin(request(plugin)) == {
        "type": "noop",
        "args": {"cni": {"ips": ["10.2.2.42/24"]}},
        "cniVersion": "1.1.0",
        "name": "net",
    }


def test_prev_result_is_the_document_of_the_result() -> None:
    """The result of before is told whole, with all keys that nobody here knows."""
    document: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24", "x": 1}], "y": {"z": None}}
    made = stdin(request({"type": "noop"}, verb=Verb.DEL, prev_result=Result.from_document(document)))
    assert made == {"type": "noop", "name": "net", "cniVersion": "1.1.0", "prevResult": document}
