# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a plugin receives: environment and standard input."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, parse_json
from cni_invoker import Attachment, AttachmentKey, NetworkConfigurationList, Result, Verb
from cni_invoker.advanced import parse_configuration
from cni_invoker.documents.request import Request, Requests
from tests.records import list_of

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
    return list_of(plugin, name="net", version=version)


def request(
    plugin: JsonObject,
    *,
    version: str = "1.1.0",
    attachment: Attachment = ATTACHMENT,
    prev_result: Result | None = None,
    verb: Verb = Verb.ADD,
) -> Request:
    """Make a request to the only plugin of a list."""
    network = make_list(plugin, version)
    return REQUESTS.attachment(verb, network, network.plugins[0], attachment, prev_result)


def stdin(made: Request) -> JsonValue:
    """Return what the plugin reads from standard input."""
    return parse_json(made.stdin)


def test_cni_variables_replace_inherited_ones() -> None:
    """All variables of CNI are set; all others are inherited."""
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


def test_name_and_version_come_from_the_list() -> None:
    """The plugin's own keys for them are replaced; all other keys are kept."""
    plugin: JsonObject = {"type": "noop", "name": "mine", "cniVersion": "0.1.0", "some-key": {"ä": 9007199254740993}}
    assert stdin(request(plugin)) == {
        "type": "noop",
        "name": "net",
        "cniVersion": "1.1.0",
        "some-key": {"ä": 9007199254740993},
    }


def test_published_ports_are_counted() -> None:
    """They are counted for a plugin that declares portMappings; a value that is not a list counts as none."""
    declares: JsonObject = {"type": "noop", "capabilities": {"portMappings": True}}
    two: JsonValue = [{"hostPort": 1}, {"hostPort": 2}]
    cases: tuple[tuple[JsonValue, int], ...] = ((two, 2), ([], 0), ("many", 0), (None, 0))
    for ports, count in cases:
        attachment = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": ports})
        assert request(declares, attachment=attachment).ports == count
        assert request({"type": "noop"}, attachment=attachment).ports == 0


@pytest.mark.parametrize(("version", "kept"), [("0.4.0", True), ("1.0.0", False), ("1.1.0", False)])
def test_capabilities_are_removed_from_1_0_0_on(version: str, kept: bool) -> None:
    """SPEC 1.0.0 has them removed; plugins of older versions still receive them."""
    made = request({"type": "noop", "capabilities": {"mac": True}}, version=version)
    assert (b'"capabilities"' in made.stdin) is kept


def test_reserved_keys_of_the_configuration_are_removed() -> None:
    """Only the runtime sets them; `args` is kept."""
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


def test_prev_result_is_the_complete_document() -> None:
    """Unknown keys of the result are passed on."""
    document: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24", "x": 1}], "y": {"z": None}}
    made = stdin(request({"type": "noop"}, verb=Verb.DEL, prev_result=Result.from_document(document)))
    assert made == {"type": "noop", "name": "net", "cniVersion": "1.1.0", "prevResult": document}


def test_the_configuration_is_passed_on_as_written() -> None:
    """Decimals, the order of keys and unknown keys are kept; a whole number is an integer."""
    data = (
        b'{"name": "net", "cniVersion": "1.0.0", "plugins": ['
        b'{"z": 1.5, "type": "noop", "a": 9007199254740993, "b": {"y": 1e3, "x": [1.0, 0.5]}}]}'
    )
    network = parse_configuration(data, Path("a.conflist"))
    made = REQUESTS.attachment(Verb.ADD, network, network.plugins[0], ATTACHMENT, None)
    assert made.stdin == (
        b'{"z":1.5,"type":"noop","a":9007199254740993,"b":{"y":1000,"x":[1,0.5]},"cniVersion":"1.0.0","name":"net"}'
    )


PLUGIN: JsonObject = {"type": "noop", "capabilities": {"mac": True}, "prevResult": {}, "key": 1}
NO_ATTACHMENT = {
    "CNI_CONTAINERID": "",
    "CNI_NETNS": "",
    "CNI_IFNAME": "",
    "CNI_ARGS": "",
    "CNI_PATH": "/some/cni/path:/other",
}


def test_gc_receives_the_valid_attachments() -> None:
    """They are under both keys; the variables of an attachment are empty."""
    network = make_list(PLUGIN)
    valid = [AttachmentKey(container_id="c1", ifname="eth0"), AttachmentKey(container_id="c2", ifname="eth1")]
    made = REQUESTS.gc(network, network.plugins[0], valid)
    attachments: JsonValue = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "eth1"}]
    assert stdin(made) == {
        "type": "noop",
        "key": 1,
        "cniVersion": "1.1.0",
        "name": "net",
        "cni.dev/valid-attachments": attachments,
        "cni.dev/attachments": attachments,
    }
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, "CNI_COMMAND": "GC"}


def test_status_receives_the_configuration() -> None:
    """STATUS has the plugin's configuration, and empty variables of an attachment."""
    network = make_list(PLUGIN)
    made = REQUESTS.status(network, network.plugins[0])
    assert stdin(made) == {"type": "noop", "key": 1, "cniVersion": "1.1.0", "name": "net"}
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, "CNI_COMMAND": "STATUS"}


def test_version_is_sent_in_the_newest_version() -> None:
    """VERSION has no configuration; old plugins require some variables, which have dummy values."""
    made = REQUESTS.version("noop")
    assert (made.plugin, made.verb, made.stdin) == ("noop", Verb.VERSION, b'{"cniVersion":"1.1.0"}')
    dummies = dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")
    assert made.environment == {**INHERITED, **NO_ATTACHMENT, **dummies, "CNI_COMMAND": "VERSION"}
