# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The environment of the command, read as cnitool reads it."""

import logging
from pathlib import Path

import pytest

from cni_invoker.errors import InvalidParameter
from cni_tool.forms import Messages, container_id, echo, find_configuration_dir, find_plugin_dirs, parse_attachment

TESTING = "cnitool-77383ca0a0715733ca6f"
"""The container ID that cnitool derives from /var/run/netns/testing."""


def test_the_container_id_is_that_of_cnitool() -> None:
    """It is the first ten bytes of SHA-512 over the absolute path, in hexadecimal."""
    assert container_id("/var/run/netns/testing") == TESTING


@pytest.mark.parametrize("netns", ["/var/run/netns/testing", "//var/run//netns/./x/../testing/"])
def test_the_netns_path_is_cleaned(netns: str) -> None:
    """One namespace has one container ID: paths are cleaned as in Go, without following links."""
    attachment = parse_attachment(netns, {})
    assert (attachment.netns, attachment.container_id) == ("/var/run/netns/testing", TESTING)


def test_a_relative_netns_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    assert parse_attachment("testing", {}).netns == str(tmp_path / "testing")


def test_defaults_of_missing_variables() -> None:
    """The interface is eth0, and the directories are the usual ones."""
    attachment = parse_attachment("/run/netns/c1", {"CNI_ARGS": "", "CAP_ARGS": "", "CNI_IFNAME": ""})
    assert (attachment.ifname, attachment.args, attachment.capability_args) == ("eth0", (), {})
    assert find_configuration_dir({}) == Path("/etc/cni/net.d")
    assert find_plugin_dirs({}) == (Path("/opt/cni/bin"), Path("/usr/lib/cni"))


def test_all_variables_of_cnitool_are_read() -> None:
    """The option for the interface wins over the variable."""
    environment = {"CNI_IFNAME": "net1", "CNI_ARGS": "A=1;B=2", "CAP_ARGS": '{"mac": "02:00:00:00:00:01"}'}
    attachment = parse_attachment("/run/netns/c1", environment)
    assert attachment.ifname == "net1"
    assert attachment.args == (("A", "1"), ("B", "2"))
    assert attachment.capability_args == {"mac": "02:00:00:00:00:01"}
    assert parse_attachment("/run/netns/c1", environment, ifname="net2").ifname == "net2"
    assert find_configuration_dir({"NETCONFPATH": "/a"}) == Path("/a")
    assert find_plugin_dirs({"CNI_PATH": "/a::/b"}) == (Path("/a"), Path("/b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CNI_ARGS", "A"),
        ("CNI_ARGS", "A=1;"),
        ("CNI_ARGS", "=1"),
        ("CNI_ARGS", "A="),
        ("CNI_ARGS", "A=1=2"),
        ("CAP_ARGS", "{"),
        ("CAP_ARGS", "[]"),
        ("CNI_IFNAME", "a/b"),
    ],
)
def test_an_invalid_variable_is_an_error(name: str, value: str) -> None:
    """It has code 4 (invalid environment variable), and is not ignored."""
    with pytest.raises(InvalidParameter) as caught:
        parse_attachment("/run/netns/c1", {name: value})
    assert caught.value.code == 4


@pytest.mark.parametrize("err", [False, True])
def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str], *, err: bool) -> None:
    """A name controls no terminal; line breaks and tabs are the tool's own."""
    echo("a\tb\nx\x1b[2K\r\x9b\u202ey", err=err)
    shown = capsys.readouterr()
    assert (shown.err if err else shown.out) == "a\tb\nx\\x1b[2K\\r\\x9b\\u202ey\n"


def test_control_characters_of_a_plugin_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """What it writes to standard error is shown with its name."""
    facts = {"event": "plugin.stderr", "plugin": "blue", "line": "x\x1b[2K"}
    Messages().emit(logging.makeLogRecord(facts))
    assert capsys.readouterr().err == "blue: x\\x1b[2K\n"
