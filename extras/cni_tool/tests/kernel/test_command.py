# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command with real plugins, and the programs of the documentation that store attachments."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str, parse_json
from cni_tool.forms import container_id
from tests.kernel.namespace import Namespace
from tests.pages import MANAGER, read_blocks, read_programs

LIMIT_S = 60.0
PLUGIN_DIRS = "/opt/cni/bin:/usr/lib/cni"
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
        environment = {**os.environ, "NETCONFPATH": str(self.directory), "CNI_PATH": PLUGIN_DIRS}
        verb, *rest = arguments
        command = [sys.executable, "-m", "cni_tool", verb, *options, *rest]
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


CACHE = Path("/var/lib/cni")
PLUGINS = Path("/usr/lib/cni")


def test_a_manager_of_networks(private_namespaces: int, tmp_path: Path) -> None:
    """The commands on the page, and what CHECK, GC and `rm` find."""
    assert private_namespaces
    (text,) = read_programs(MANAGER).values()
    text = text.replace("/opt/cni/bin", str(PLUGINS)).replace("/etc/cni/net.d", str(tmp_path))
    (tmp_path / "networks.py").write_text(text, "utf-8")
    (block,) = read_blocks(MANAGER)
    create, make, connect, check, unmake, collect, remove = block.text.splitlines()

    def do(line: str, status: int = 0) -> str:
        words = line.replace("python", sys.executable, 1).split()
        done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    assert do(create) == ""
    assert do(create, status=1) == "there is a network blue already\n"
    do(make)
    assert do(connect) == "eth0 10.4.1.2/24\n"
    assert do("python networks.py ls") == "blue box\n"
    assert do(remove, status=1) == "blue is used by box\n"
    assert do(check) == ""
    Namespace(Path("/run/netns/box")).ip("link delete eth0")
    assert do(check).startswith("blue of box: ")
    do(unmake)
    do(collect)
    assert do("python networks.py ls") == "blue\n"
    assert not list((CACHE / "networks/blue").glob("10.*"))
    assert do(remove) == ""
    assert not list(tmp_path.glob("*.conflist"))
    subprocess.run(["rm", "-rf", *CACHE.iterdir()], check=True)
    # The page says so: `bridge` finds its masquerading by the link, which is gone.
    subprocess.run(["sh", "-c", "iptables -t nat -F && iptables -t nat -X"], check=True)
