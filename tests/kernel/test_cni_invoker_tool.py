# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tool, with real plugins in real namespaces, and the cache that it shares with cnitool."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_invoker.cli.environment import container_id
from spec import JsonObject, as_object, get_objects, get_str, parse_json
from tests.kernel.namespace import Namespace

PLUGIN_DIRS = "/opt/cni/bin:/usr/lib/cni"
LIMIT_S = 60.0
NETNS = "/run/netns/sandbox"


class Tool:
    """The tool, on a list of bridge and host-local."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "cache" / "results" / f"blue-{container_id(NETNS)}-eth0"
        ranges = [[{"subnet": "10.99.0.0/24"}]]
        ipam = {"type": "host-local", "dataDir": str(directory), "ranges": ranges}
        bridge = {"type": "bridge", "bridge": "cni-test0", "isGateway": True, "ipam": ipam}
        self.list = {"cniVersion": "1.0.0", "name": "blue", "plugins": [bridge]}
        (directory / "blue.conflist").write_text(json.dumps(self.list))

    def run(self, *arguments: str, options: tuple[str, ...] = ()) -> str:
        """Run the tool and give what it printed."""
        environment = {
            **os.environ,
            "NETCONFPATH": str(self.directory),
            "CNI_PATH": PLUGIN_DIRS,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        verb, *rest = arguments
        command = [sys.executable, "-m", "cni_invoker", verb, *options, *rest]
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S
        ).stdout

    def attach(self, verb: str) -> str:
        """Run a verb for the sandbox."""
        return self.run(verb, "blue", NETNS, options=("--cache-dir", str(self.directory / "cache")))

    def reservations(self) -> set[str]:
        """Give the addresses that host-local has given away."""
        return {file.name for file in (self.directory / "blue").iterdir() if file.name[0].isdigit()}


@pytest.fixture(name="tool")
def make_tool(tmp_path: Path) -> Iterator[Tool]:
    """The object under test; its bridge is removed at the end."""
    if not any((Path(directory) / "bridge").exists() for directory in PLUGIN_DIRS.split(":")):
        pytest.skip(f"no plugins in {PLUGIN_DIRS}")
    yield Tool(tmp_path)
    subprocess.run(["ip", "link", "delete", "cni-test0"], check=False)


def test_add_check_and_del(tool: Tool, sandbox: Namespace) -> None:
    """The namespace gets the printed address, is found as it should be, and loses all again."""
    result = as_object(parse_json(tool.attach("add").encode()), "the result")
    address = get_str(get_objects(result, "ips")[0], "address")
    assert sandbox.addresses("eth0") == [address]
    assert tool.reservations() == {address.partition("/")[0]}
    assert tool.attach("check") == ""
    tool.attach("del")
    tool.attach("del")
    assert sandbox.links() == set()
    assert tool.reservations() == set()
    assert not tool.record.exists()


def test_check_finds_what_is_missing(tool: Tool, sandbox: Namespace) -> None:
    """An address that somebody has taken away is found by CHECK, with bridge's own words."""
    tool.attach("add")
    sandbox.ip("address flush dev eth0")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        tool.attach("check")
    error = as_object(parse_json(caught.value.stdout.encode()), "the error")
    assert "eth0" in get_str(error, "msg")
    tool.attach("del")


def test_del_of_what_cnitool_has_added(tool: Tool, sandbox: Namespace) -> None:
    """A file as libcni writes it, without what is ours, is enough for CHECK and DEL, the configuration being gone."""
    tool.attach("add")
    record = as_object(parse_json(tool.record.read_bytes()), "the record")
    order = ("kind", "containerId", "config", "ifName", "networkName", "netns", "result")
    libcni: JsonObject = {key: record[key] for key in order}
    tool.record.write_text(json.dumps(libcni, separators=(",", ":")))
    tool.attach("check")
    (tool.directory / "blue.conflist").unlink()
    tool.attach("del")
    assert sandbox.links() == set()
    assert tool.reservations() == set()


def test_validate(tool: Tool) -> None:
    """The real plugins tell what they speak."""
    lines = tool.run("validate", "blue").splitlines()
    assert lines[0] == f"blue ({tool.directory}/blue.conflist): CNI 1.0.0"
    assert [line.split()[:2] for line in lines[1:]] == [["ok", "bridge"], ["ok", "host-local"]]
