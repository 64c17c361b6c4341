# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `python -m cni_invoker`, with real plugins in real namespaces, and the cache it shares with cnitool."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str, parse_json
from cni_invoker.cli.forms import container_id
from tests.kernel.namespace import Namespace

PLUGIN_DIRS = "/opt/cni/bin:/usr/lib/cni"
LIMIT_S = 60.0
NETNS = "/run/netns/5a4db0c50001"


class Tool:
    """The command, with a list of bridge and host-local."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.record = directory / "cache" / "results" / f"blue-{container_id(NETNS)}-eth0"
        ranges = [[{"subnet": "10.99.0.0/24"}]]
        ipam = {"type": "host-local", "dataDir": str(directory), "ranges": ranges}
        bridge = {"type": "bridge", "bridge": "cni-test0", "isGateway": True, "ipam": ipam}
        self.list = {"cniVersion": "1.0.0", "name": "blue", "plugins": [bridge]}
        (directory / "blue.conflist").write_text(json.dumps(self.list))

    def run(self, *arguments: str, options: tuple[str, ...] = ()) -> str:
        """Run the command and return its output."""
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
        """Return the addresses that host-local has reserved."""
        return {file.name for file in (self.directory / "blue").iterdir() if file.name[0].isdigit()}


@pytest.fixture(name="tool")
def make_tool(tmp_path: Path) -> Iterator[Tool]:
    """The command under test; its bridge is removed at the end."""
    if not any((Path(directory) / "bridge").exists() for directory in PLUGIN_DIRS.split(":")):
        pytest.skip(f"no CNI plugins in {PLUGIN_DIRS}")
    yield Tool(tmp_path)
    subprocess.run(["ip", "link", "delete", "cni-test0"], check=False)


def test_add_check_and_del(tool: Tool, sandbox: Namespace) -> None:
    """`add` gives the namespace the printed address, `check` succeeds, and a repeated `del` leaves nothing."""
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


def test_del_of_an_attachment_of_cnitool(tool: Tool, sandbox: Namespace) -> None:
    """A cache file as libcni writes it is enough for CHECK, and for DEL after the configuration was removed."""
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
