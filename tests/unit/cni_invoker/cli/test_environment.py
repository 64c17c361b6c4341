# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tool's environment, read as cnitool reads it."""

from pathlib import Path

import pytest

from cni_invoker import InvalidParameter
from cni_invoker.cli.environment import container_id, find_configuration_dir, find_plugin_dirs, parse_attachment

TESTING = "cnitool-77383ca0a0715733ca6f"
"""What cnitool calls the container of /var/run/netns/testing."""


def test_container_id() -> None:
    """It is cnitool's: the first ten bytes of SHA-512 over the absolute path, in hexadecimal."""
    assert container_id("/var/run/netns/testing") == TESTING


@pytest.mark.parametrize("netns", ["/var/run/netns/testing", "//var/run//netns/./x/../testing/"])
def test_the_path_is_made_absolute(netns: str) -> None:
    """One namespace has one ID, as Go cleans paths; links are not followed."""
    attachment = parse_attachment(netns, {})
    assert (attachment.netns, attachment.container_id) == ("/var/run/netns/testing", TESTING)


def test_a_relative_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is one below the working directory."""
    monkeypatch.chdir(tmp_path)
    assert parse_attachment("testing", {}).netns == str(tmp_path / "testing")


def test_defaults() -> None:
    """Without anything it is eth0, and the usual directories."""
    attachment = parse_attachment("/run/netns/c1", {"CNI_ARGS": "", "CAP_ARGS": "", "CNI_IFNAME": ""})
    assert (attachment.ifname, attachment.args, attachment.capability_args) == ("eth0", (), {})
    assert find_configuration_dir({}) == Path("/etc/cni/net.d")
    assert find_plugin_dirs({}) == (Path("/opt/cni/bin"), Path("/usr/lib/cni"))


def test_everything_set() -> None:
    """All of cnitool's variables are known; the option wins over the variable."""
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
def test_what_is_refused(name: str, value: str) -> None:
    """A variable that is not of its form is an error with CNI's code for that, not ignored."""
    with pytest.raises(InvalidParameter) as caught:
        parse_attachment("/run/netns/c1", {name: value})
    assert caught.value.code == 4
