# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The programs of cni-invoker.md and managing-networks.md do what the pages say, with real plugins and namespaces."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, render_json
from cni_invoker import Attachment, FileCache, NetworkConfigurationList, PluginFailed, Runtime
from tests.kernel.namespace import Namespace, made_namespace
from tests.pages import CNI_INVOKER, MANAGER, read_blocks, read_programs
from tests.records import list_of

PLUGINS = Path("/usr/lib/cni")
CACHE = Path("/var/lib/cni")


@pytest.fixture(name="directory")
def make_directory(private_namespaces: int, tmp_path: Path) -> Iterator[Path]:
    """The programs, the plugins, and a list `blue` of the plugin `pair`; the addresses are forgotten afterwards."""
    assert private_namespaces
    binaries, lists = tmp_path / "bin", tmp_path / "net.d"
    binaries.mkdir()
    lists.mkdir()
    (binaries / "host-local").symlink_to(PLUGINS / "host-local")
    for name, text in read_programs(CNI_INVOKER).items():
        program = text.replace("/opt/cni/bin", str(binaries)).replace("/etc/cni/net.d", str(lists))
        program = program.replace("#!/usr/bin/env python3", f"#!{sys.executable}")
        place = binaries / name.removesuffix(".py") if program.startswith("#!") else tmp_path / name
        place.write_text(program, "utf-8")
        place.chmod(0o755)
    (lists / "blue.conflist").write_bytes(render_json(blue(tmp_path).document))
    yield tmp_path
    assert not FileCache(CACHE)._list(None, whole=True)
    subprocess.run(["rm", "-rf", *CACHE.iterdir()], check=True)


def blue(directory: Path, ipam: str = "host-local", first: str = "") -> NetworkConfigurationList:
    """The list."""
    subnet: JsonObject = {"subnet": "10.88.0.0/24", **({"rangeStart": first} if first else {})}
    plugin: JsonObject = {
        "type": "pair",
        "ipam": {"type": ipam, "dataDir": str(directory / "ips"), "ranges": [[subnet]]},
    }
    return list_of(plugin)


def run(directory: Path, name: str) -> str:
    """Run a program; return what it prints."""
    ended = subprocess.run([sys.executable, directory / name], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def addresses(directory: Path) -> set[str]:
    """The addresses that host-local has reserved."""
    return {file.name for file in (directory / "ips/blue").glob("10.*")}


def test_attaching(directory: Path) -> None:
    """The address is printed, and nothing is left."""
    with made_namespace("testing") as box:
        assert run(directory, "attach.py") == "10.88.0.2/24\n"
        assert box.links() == set()
    assert addresses(directory) == set()


def test_a_plugin_that_fails(directory: Path) -> None:
    """Its words are printed, with its name."""
    with made_namespace("testing") as box:
        box.ip("link add eth0 type veth peer name other")
        printed = run(directory, "attach.py")
        assert printed == "pair says 'example already has an interface eth0; DEL it first' (code 999)\n"
    assert addresses(directory) == set()


def test_a_repeated_add_keeps_the_address(directory: Path) -> None:
    """A runtime without a store repeats ADD: it fails, and the container in use keeps its address."""
    runtime = Runtime(directory / "bin")
    network = blue(directory)
    attachment = Attachment(container_id="one", ifname="eth0", netns="/run/netns/one")
    with made_namespace("one") as box:
        result = asyncio.run(runtime.add(network, attachment))
        with pytest.raises(PluginFailed, match="one already has an interface eth0"):
            asyncio.run(runtime.add(network, attachment))
        assert addresses(directory) == {"10.88.0.2"}
        box.ip("link delete eth0")
        with pytest.raises(PluginFailed, match=r'plugin type="host-local" failed \(add\): .*duplicate allocation'):
            asyncio.run(runtime.add(network, attachment))  # the container has renamed it, for example
        assert addresses(directory) == {"10.88.0.2"}
        asyncio.run(runtime.delete(network, attachment, result))
    assert addresses(directory) == set()


def test_an_ipam_plugin_that_delegates(directory: Path) -> None:
    """It counts addresses, and leaves the rest to host-local; its own refusal frees nothing."""
    runtime = Runtime(directory / "bin")
    network = blue(directory, "quota")
    attachments = [Attachment(container_id="one", ifname=f"eth{n}", netns="/run/netns/one") for n in range(3)]
    with made_namespace("one"):
        for attachment in attachments[:2]:
            asyncio.run(runtime.add(network, attachment))
            subprocess.run(["ip", "link", "delete", "one"], check=True)  # the plugin names it after the container
        with pytest.raises(PluginFailed, match="one has 2 addresses already"):
            asyncio.run(runtime.add(network, attachments[2]))
    assert addresses(directory) == {"10.88.0.2", "10.88.0.3"}
    for attachment in attachments:
        asyncio.run(runtime.delete(network, attachment, None))
    assert addresses(directory) == set()


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
