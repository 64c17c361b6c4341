# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON documents are parsed to network configuration lists."""

from contextlib import suppress
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_objects, render_json
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import parse_configuration
from cni_invoker.errors import BadConfiguration

LIST: JsonObject = {
    "name": "some-network",
    "cniVersion": "0.4.0",
    "unknown": {"z": 1, "a": [None, 9007199254740993]},
    "disableCheck": True,
    "plugins": [
        {
            "type": "bridge",
            "ipMasq": True,
            "capabilities": {"mac": True, "ips": False},
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def test_a_list_is_parsed() -> None:
    """Name, version, plugins, IPAM types and capabilities are available as typed fields."""
    network = NetworkConfigurationList.from_document(LIST)
    assert (network.name, network.cni_version, network.disable_check) == ("some-network", "0.4.0", True)
    bridge, portmap = network.plugins
    assert (bridge.type, bridge.ipam_type, bridge.capabilities) == ("bridge", "host-local", frozenset({"mac"}))
    assert (portmap.type, portmap.ipam_type, portmap.capabilities) == ("portmap", None, frozenset({"portMappings"}))


@pytest.mark.parametrize("suffix", [".conf", ".json"])
def test_a_single_plugin_becomes_a_list(suffix: str) -> None:
    """The format before CNI 0.3.0 becomes a list of one plugin, and so does its stored document."""
    data = b'{"name": "net", "cniVersion": "0.2.0", "type": "bridge", "some-key": "some-value"}'
    network = parse_configuration(data, Path(f"/etc/cni/net.d/10-net{suffix}"))
    assert (network.name, network.cni_version) == ("net", "0.2.0")
    (plugin,) = network.plugins
    assert plugin.type == "bridge"
    assert plugin.document == {"name": "net", "cniVersion": "0.2.0", "type": "bridge", "some-key": "some-value"}
    assert NetworkConfigurationList.from_document(network.document).plugins == network.plugins


@pytest.mark.parametrize(("written", "meant"), [("true", True), ("FALSE", False), (False, False), ("True", True)])
def test_booleans_may_be_strings(written: JsonValue, meant: bool) -> None:
    """As in libcni, each may be a boolean, or a string in any letter case."""
    network = NetworkConfigurationList.from_document({**LIST, "disableCheck": written, "disableGC": written})
    assert (network.disable_check, network.disable_gc) == (meant, meant)


def test_offered_versions_are_in_descending_order() -> None:
    """`cniVersions` and `cniVersion` are merged, and the newest is the default."""
    network = NetworkConfigurationList.from_document({**LIST, "cniVersions": ["1.0.0", "0.3.1"]})
    assert (network.cni_version, network.cni_versions) == ("1.0.0", ("1.0.0", "0.4.0", "0.3.1"))


def test_a_list_with_a_negotiated_version() -> None:
    """It offers no other version, also after it was stored and parsed again."""
    network = NetworkConfigurationList.from_document({**LIST, "cniVersions": ["1.0.0", "0.3.1"]})
    chosen = network.with_version("0.4.0")
    assert (chosen.cni_version, chosen.cni_versions) == ("0.4.0", ("0.4.0",))
    assert chosen.document == LIST
    assert NetworkConfigurationList.from_document(chosen.document) == chosen
    assert chosen.with_version("0.4.0") is chosen


def test_plugins_of_other_files_are_appended() -> None:
    """They become part of the document, which then says that it is complete."""
    further: JsonObject = {"type": "tuning", "key": 1}
    network = NetworkConfigurationList.from_document(LIST, find_further=lambda _: [further])
    assert [plugin.type for plugin in network.plugins] == ["bridge", "portmap", "tuning"]
    assert network.document["plugins"] == [*get_objects(LIST, "plugins"), further]
    assert network.document["loadOnlyInlinedPlugins"] is True
    assert NetworkConfigurationList.from_document(network.document) == network


def test_plugins_of_other_files_are_read_for_incomplete_lists_only() -> None:
    """They are not read for a list with `loadOnlyInlinedPlugins`, an invalid list, or an invalid name."""

    def read(document: JsonValue, name: str = "a.conflist") -> list[str]:
        requested: list[str] = []

        def find(network: str) -> list[JsonObject]:
            requested.append(network)
            return [{"type": "tuning"}]

        with suppress(BadConfiguration):
            parse_configuration(render_json(document), Path(name), find)
        return requested

    assert read(LIST) == ["some-network"]
    assert read({**LIST, "loadOnlyInlinedPlugins": "false"}) == ["some-network"]
    assert read({**LIST, "loadOnlyInlinedPlugins": True}) == []
    assert read({**LIST, "loadOnlyInlinedPlugins": "junk"}) == []
    assert read({**LIST, "name": "../etc"}) == []
    assert read({"name": "net", "type": "bridge"}, "a.conf") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": 5}, "name"),
        ({"name": ""}, "network name"),
        ({"name": "a/b"}, "network name"),
        ({"plugins": []}, "no plugins in list"),
        ({"plugins": {}}, "plugins"),
        ({"plugins": [{"type": "bridge"}, {"some-key": 1}]}, r"plugins\[1\].type is missing"),
        ({"plugins": [{"type": "../bridge"}]}, "plugin type"),
        ({"plugins": [{"type": "bridge", "ipam": {"type": "a/b"}}]}, "plugin type"),
        ({"plugins": [{"type": "bridge", "ipam": 1}]}, r"plugins\[0\].ipam"),
        ({"plugins": [{"type": "bridge", "capabilities": {"mac": "yes"}}]}, r"plugins\[0\].capabilities.mac"),
        ({"cniVersion": 1}, "cniVersion"),
        ({"cniVersion": "broken"}, "CNI version 'broken'"),
        ({"cniVersions": ["1.0.0", "1.0.f"]}, "CNI version '1.0.f'"),
        ({"cniVersions": ["2.0.0"], "cniVersion": ""}, "unsupported CNI version 2.0.0"),
        ({"disableCheck": "adsfasdfasf"}, "invalid value for disableCheck: a string that is neither"),
        ({"disableCheck": 1}, "disableCheck"),
        ({"disableGC": "x"}, "invalid value for disableGC: a string that is neither"),
        ({"loadOnlyInlinedPlugins": "x"}, "invalid value for loadOnlyInlinedPlugins: a string that is neither"),
    ],
)
def test_an_invalid_list_names_file_and_key(change: dict[str, JsonValue], reason: str) -> None:
    """The error has code 7 (invalid configuration)."""
    with pytest.raises(BadConfiguration, match=reason) as caught:
        NetworkConfigurationList.from_document({**LIST, **change}, source=Path("/etc/cni/net.d/a.conflist"))
    assert caught.value.code == 7
    assert str(caught.value).startswith("error parsing configuration list: /etc/cni/net.d/a.conflist: ")


def test_a_list_without_plugins_is_invalid() -> None:
    """The error says whether other files were read for plugins."""
    with pytest.raises(BadConfiguration, match="no plugin configs found"):
        NetworkConfigurationList.from_document({"name": "a"})
    with pytest.raises(BadConfiguration, match="`loadOnlyInlinedPlugins` is true, and no 'plugins' key"):
        NetworkConfigurationList.from_document({"name": "a", "loadOnlyInlinedPlugins": "True"})


def test_a_syntax_error_has_line_and_column() -> None:
    """A file that is not JSON is an error with its position."""
    file = Path("/etc/cni/net.d/10-bad.conflist")
    with pytest.raises(BadConfiguration) as caught:
        parse_configuration(b'{"name": "net",\n "plugins": [\n  {"type": bridge}\n]}', file)
    assert (caught.value.file, caught.value.line, caught.value.column) == (file, 3, 12)
    assert (
        str(caught.value)
        == "error parsing configuration list: /etc/cni/net.d/10-bad.conflist, line 3, column 12: Expecting value"
    )


LIST_TEXT = b'{"name": "net", "plugins": [{"type": "bridge"}]}'


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"\xef\xbb\xbf" + LIST_TEXT, "it begins with a byte order mark; save it as UTF-8 without one"),
        (LIST_TEXT.decode().encode("utf-16"), "it is UTF-16; save it as UTF-8"),
        (b"# the office LAN\n" + LIST_TEXT, "JSON has no comments; remove them"),
        (b'{"name": "net", // the LAN\n "plugins": []}', "JSON has no comments; remove them"),
        (b'{"name": "net", /* the LAN */ "plugins": []}', "JSON has no comments; remove them"),
        (b"'" + LIST_TEXT + b"'\n", "the whole file is in quotes; remove them"),
        ("“".encode() + LIST_TEXT, "the whole file is in quotes; remove them"),
        (b"name: net\nplugins:\n- type: bridge\n", "it looks like YAML; write it as JSON"),
        (b"---\nname: net\n", "it looks like YAML; write it as JSON"),
        (b'{"name": "net", "plugins": [{"type": "bridge"},]}', "remove the comma after the last item"),
    ],
)
def test_a_file_that_is_not_json_is_called_what_it_is(data: bytes, hint: str) -> None:
    """The error ends with what the file seems to be, and what to do."""
    with pytest.raises(BadConfiguration) as caught:
        parse_configuration(data, Path("/etc/cni/net.d/10-net.conflist"))
    assert str(caught.value).startswith("error parsing configuration list: /etc/cni/net.d/10-net.conflist, line ")
    assert str(caught.value).endswith(f"; {hint}")


@pytest.mark.parametrize(
    "data", [b'{"name": "http://net # 1", "plugins" []}', b'{"name": "a: b,]",', b"{name: net}", b"hello", b"\x00"]
)
def test_other_syntax_errors_get_no_hint(data: bytes) -> None:
    """What is in a text in quotes is not taken for a comment, nor any word for YAML."""
    with pytest.raises(BadConfiguration) as caught:
        parse_configuration(data, Path("a.conflist"))
    assert ";" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.conflist", "a.conf"])
def test_a_document_in_quotes(name: str) -> None:
    """It is JSON, but one text."""
    with pytest.raises(BadConfiguration, match="one text in quotes; remove the quotes around it"):
        parse_configuration(render_json(LIST_TEXT.decode()), Path(name))


def test_a_plugin_in_a_list_file_is_an_error() -> None:
    """The error says that a single plugin belongs in a .conf file, or in a list."""
    with pytest.raises(BadConfiguration, match=r"single plugin.*belongs into a \.conf file, or into 'plugins'"):
        parse_configuration(b'{"name": "net", "type": "bridge"}', Path("10-net.conflist"))
    with pytest.raises(BadConfiguration, match=r"name is missing.*single plugin"):
        parse_configuration(b'{"type": "bridge"}', Path("10-net.conflist"))


def test_a_list_in_a_conf_file_is_an_error() -> None:
    """The error says that a list belongs in a .conflist file."""
    with pytest.raises(BadConfiguration, match=r"type is missing.*belongs into a \.conflist file"):
        parse_configuration(b'{"name": "net", "plugins": [{"type": "bridge"}]}', Path("10-net.conf"))
