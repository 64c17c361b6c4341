# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The library with real plugins: several processes on one host, and the programs of the documentation."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, render_json
from cni_invoker import DEFAULT_LOCK_DIR, Attachment, NetworkConfigurationList, PluginFailed, Runtime
from tests.kernel.namespace import Namespace, made_namespace
from tests.pages import CNI_INVOKER, read_programs
from tests.records import list_of

HOST = Namespace(Path("/proc/self/ns/net"))
PLUGINS = Path("/usr/lib/cni")
LIMIT_S = 60.0
RUNTIMES = 8

RUNTIME = """
import asyncio, json, pathlib, sys
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime

async def main():
    directory, locks, document, name, port = sys.argv[1:]
    runtime = Runtime([pathlib.Path(directory)], Limits(), lock_dir=pathlib.Path(locks))
    network = NetworkConfigurationList.from_document(json.loads(document))
    ports = {"portMappings": [{"hostPort": int(port), "containerPort": 80, "protocol": "tcp"}]}
    attachment = Attachment(container_id=name, ifname="eth0", netns=f"/run/netns/{name}", capability_args=ports)
    print("ready", flush=True)
    sys.stdin.readline()
    result = await runtime.add(network, attachment)
    print("added", flush=True)
    sys.stdin.readline()
    await runtime.delete(network, attachment, result)

asyncio.run(main())
"""
"""Another program: it runs ADD after the first line of its input, and DEL after the second."""


def rules() -> Counter[str]:
    """Count the rules of the tables that plugins write to, by their text."""
    found = (line for table in ("nat", "filter") for line in HOST.run(f"iptables -t {table} -S").decode().splitlines())
    return Counter(line for line in found if line.startswith("-A"))


@pytest.fixture
def clean(private_namespaces: int) -> Iterator[None]:
    """Remove, after the test, what plugins leave behind by design."""
    assert private_namespaces
    if not (PLUGINS / "portmap").exists():
        pytest.skip(f"no CNI plugins in {PLUGINS}")
    yield
    HOST.ip("link del cni-test0")
    for table in ("nat", "filter"):
        HOST.run(f"iptables -t {table} -F")
        HOST.run(f"iptables -t {table} -X")


@pytest.mark.usefixtures("clean")
def test_processes_that_add_at_once(tmp_path: Path) -> None:
    """Although each ADD is the first in its process, no jump or rule is made twice, and DEL removes all."""
    ipam = {"type": "host-local", "dataDir": str(tmp_path), "subnet": "10.99.0.0/24"}
    plugins = [
        {"type": "bridge", "bridge": "cni-test0", "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "firewall", "backend": "iptables"},
    ]
    document = json.dumps({"cniVersion": "1.0.0", "name": "blue", "plugins": plugins})
    names = [f"runtime{number}" for number in range(RUNTIMES)]
    with ExitStack() as everything:
        for name in names:
            HOST.ip(f"netns add {name}")
            everything.callback(HOST.ip, f"netns del {name}")
        processes = [
            everything.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", RUNTIME, str(PLUGINS), str(DEFAULT_LOCK_DIR), document, name, str(8000 + n)],
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n, name in enumerate(names)
        ]
        for process in processes:
            everything.callback(process.kill)
        for line in ("ready", "added"):
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == f"{line}\n"
            existing = rules()
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
        assert [process.wait(timeout=LIMIT_S) for process in processes] == [0] * RUNTIMES
    assert any("CNI-HOSTPORT-DNAT" in rule for rule in existing)
    assert any("CNI-FORWARD" in rule for rule in existing)
    assert [rule for rule, times in existing.items() if times > 1] == []
    assert not [rule for rule in rules() if "10.99.0." in rule or "--dport" in rule]


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
