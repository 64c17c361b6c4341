# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a plugin is given: environment and standard input."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    AttachmentKey,
    NetworkConfigurationList,
    Result,
    TraceContext,
    Verb,
    parse_configuration,
)
from cni_invoker.execution.request import Request, Requests
from spec import JsonObject, JsonValue, as_object, parse_json

ATTACHMENT = Attachment(container_id="some-container-id", ifname="eth7", netns="/some/netns/path")


REQUESTS = Requests(
    plugin_dirs=(Path("/some/cni/path"), Path("/other")),
    environment={
        "CNI_COMMAND": "DEL",
        "CNI_IFNAME": "eth0",
        "CNI_NETNS": "testns",
        "PATH": "/bin",
        "TERM": "x",
        "TRACEPARENT": "inherited",
        "TRACESTATE": "inherited",
    },
)
INHERITED = {"PATH": "/bin", "TERM": "x", "TRACEPARENT": "inherited", "TRACESTATE": "inherited"}


def make_list(plugin: JsonObject, version: str = "1.1.0") -> NetworkConfigurationList:
    """Make a list of one plugin."""
    return NetworkConfigurationList.from_document({"name": "net", "cniVersion": version, "plugins": [plugin]})


def request(
    plugin: JsonObject,
    *,
    version: str = "1.1.0",
    attachment: Attachment = ATTACHMENT,
    prev_result: Result | None = None,
    verb: Verb = Verb.ADD,
) -> Request:
    """Make the request to a list's only plugin."""
    network = make_list(plugin, version)
    return REQUESTS.attachment(verb, network, network.plugins[0], attachment, prev_result)


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
        **INHERITED,
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


def test_how_many_ports() -> None:
    """They are counted for the plugin that is given them, whatever stands there."""
    declares: JsonObject = {"type": "noop", "capabilities": {"portMappings": True}}
    two: JsonValue = [{"hostPort": 1}, {"hostPort": 2}]
    cases: tuple[tuple[JsonValue, int], ...] = ((two, 2), ([], 0), ("many", 0), (None, 0))
    for ports, count in cases:
        attachment = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": ports})
        assert request(declares, attachment=attachment).ports == count
        assert request({"type": "noop"}, attachment=attachment).ports == 0


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


def test_the_configuration_arrives_as_it_was_written() -> None:
    """Numbers, the order of keys, and unknown keys arrive as they stand in the file; a whole number is an integer."""
    data = (
        b'{"name": "net", "cniVersion": "1.0.0", "plugins": ['
        b'{"z": 1.10, "type": "noop", "a": 9007199254740993, "b": {"y": 1e3, "x": [1.0, -0.0]}}]}'
    )
    network = parse_configuration(data, Path("a.conflist"))
    made = REQUESTS.attachment(Verb.ADD, network, network.plugins[0], ATTACHMENT, None)
    assert made.stdin == (
        b'{"z":1.10,"type":"noop","a":9007199254740993,"b":{"y":1000,"x":[1,-0.0]},"cniVersion":"1.0.0","name":"net"}'
    )


PLUGIN: JsonObject = {"type": "noop", "capabilities": {"mac": True}, "prevResult": {}, "key": 1}
NO_ATTACHMENT = {
    "CNI_CONTAINERID": "",
    "CNI_NETNS": "",
    "CNI_IFNAME": "",
    "CNI_ARGS": "",
    "CNI_PATH": "/some/cni/path:/other",
}


def test_gc_is_told_what_is_valid() -> None:
    """GC has all valid attachments under both keys, and is about no attachment itself."""
    network = make_list(PLUGIN)
    valid = [AttachmentKey(container_id="c1", ifname="eth0"), AttachmentKey(container_id="c2", ifname="eth1")]
    made = REQUESTS.gc(network, network.plugins[0], valid)
    told: JsonValue = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth1"}]
    assert stdin(made) == {
        "type": "noop",
        "key": 1,
        "cniVersion": "1.1.0",
        "name": "net",
        "cni.dev/valid-attachments": told,
        "cni.dev/attachments": told,
    }
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, "CNI_COMMAND": "GC"}


def test_gc_without_a_valid_attachment_says_so() -> None:
    """An empty list is told; a missing one would mean something else."""
    network = make_list(PLUGIN)
    made = as_object(stdin(REQUESTS.gc(network, network.plugins[0], [])), "stdin")
    assert (made["cni.dev/valid-attachments"], made["cni.dev/attachments"]) == ([], [])


def test_status_is_told_the_configuration() -> None:
    """STATUS has the plugin's configuration and nothing else."""
    network = make_list(PLUGIN)
    made = REQUESTS.status(network, network.plugins[0])
    assert stdin(made) == {"type": "noop", "key": 1, "cniVersion": "1.1.0", "name": "net"}
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, "CNI_COMMAND": "STATUS"}


def test_version_is_asked_in_our_newest() -> None:
    """VERSION has no configuration; dummies stand for what plugins of old ask for all the same."""
    made = REQUESTS.version("noop")
    assert (made.plugin, made.verb, made.stdin) == ("noop", Verb.VERSION, b'{"cniVersion":"1.1.0"}')
    dummies = dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, **dummies, "CNI_COMMAND": "VERSION"}


def test_a_trace_goes_on() -> None:
    """A span replaces all that the environment says of another one."""
    trace = TraceContext(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", baggage="a=b")
    made = replace(REQUESTS, trace=trace).version("noop").environment
    told = {key: value for key, value in made.items() if key.startswith(("TRACE", "BAGGAGE"))}
    assert told == {"TRACEPARENT": trace.traceparent, "BAGGAGE": "a=b"}
