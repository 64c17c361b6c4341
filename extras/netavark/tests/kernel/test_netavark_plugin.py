# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin of netavark, called with netavark's documents, with real CNI plugins; `tests/podman` has podman itself."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni_tool import FileCache
from tests.kernel.namespace import made_namespace

COMMAND = Path(sys.executable).with_name("cni-netavark")
PLUGINS = "/usr/lib/cni"
CACHE = Path("/var/lib/cni")
Document = dict[str, Any]


class Netavark:
    """Calls the plugin as netavark does; its lists and leases are in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network: Document = {
            "name": "blue",
            "id": "2f25",
            "driver": "cni",
            "dns_enabled": False,
            "internal": False,
            "ipv6_enabled": False,
            "options": {"config-dirs": str(directory / "net.d"), "plugin-dirs": f"{directory}:{PLUGINS}"},
        }

    def write(self, *further: Document, first: str = "bridge") -> None:
        """Write the list `blue`: a bridge or another plugin, and further plugins."""
        subnet = [[{"subnet": "10.88.0.0/24"}]]
        ipam = {"type": "host-local", "dataDir": str(self.directory / "ips"), "ranges": subnet}
        document = {
            "cniVersion": "1.0.0",
            "name": "blue",
            "plugins": [{"type": first, "bridge": "cni-blue", "isGateway": True, "ipam": ipam}, *further],
        }
        (self.directory / "net.d").mkdir(exist_ok=True)
        (self.directory / "net.d/blue.conflist").write_text(json.dumps(document), "utf-8")

    def call(self, *words: str, stdin: Document) -> subprocess.CompletedProcess[str]:
        """Run the plugin."""
        return subprocess.run([COMMAND, *words], input=json.dumps(stdin), capture_output=True, text=True, check=False)

    def answer(self, *words: str, stdin: Document) -> Document:
        """Run the plugin, which succeeds, and return what it prints."""
        ended = self.call(*words, stdin=stdin)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
        return dict(json.loads(ended.stdout or "{}"))

    def error(self, *words: str, stdin: Document) -> str:
        """Run the plugin, which fails, and return its error."""
        ended = self.call(*words, stdin=stdin)
        assert ended.returncode == 1
        return str(json.loads(ended.stdout)["error"])

    def container(self, name: str = "one", **options: object) -> Document:
        """What netavark sends about a container."""
        return {
            "container_id": name,
            "container_name": f"web-{name}",
            "port_mappings": None,
            "network": self.network,
            "network_options": {"interface_name": "eth0", "aliases": None, "static_ips": None, **options},
        }

    def leases(self) -> set[str]:
        """The addresses that host-local has reserved."""
        return {file.name for file in (self.directory / "ips/blue").glob("10.*")}


@pytest.fixture(name="netavark")
def make_netavark(private_namespaces: int, tmp_path: Path) -> Iterator[Netavark]:
    """The plugin with a list, whose bridge is removed afterwards."""
    assert private_namespaces
    netavark = Netavark(tmp_path)
    netavark.write()
    yield netavark
    subprocess.run(["ip", "link", "delete", "cni-blue"], check=False, capture_output=True)
    assert not asyncio.run(FileCache(CACHE).list(whole=True))
    subprocess.run(["sh", "-c", f"rm -rf {CACHE}/*"], check=True)


def test_info(netavark: Netavark) -> None:
    """Netavark's two required fields."""
    assert netavark.answer("info", stdin={}).keys() == {"version", "api_version"}


def test_create(netavark: Netavark) -> None:
    """A list that can work is accepted; podman's own fields stay."""
    assert netavark.answer("create", stdin=netavark.network) == netavark.network | {"ipam_options": {"driver": "none"}}


def test_create_of_a_list_that_does_not_exist(netavark: Netavark) -> None:
    """The error has the names that exist."""
    netavark.network["options"]["network"] = "bleu"
    error = netavark.error("create", stdin=netavark.network)
    assert "bleu" in error
    assert "blue" in error


def test_create_of_a_list_that_cannot_work(netavark: Netavark) -> None:
    """The error has the plugin and the directories."""
    netavark.write({"type": "firewal"})
    error = netavark.error("create", stdin=netavark.network)
    assert error.startswith(f"network blue in {netavark.directory}/net.d/blue.conflist cannot work: ")
    assert "firewal" in error


@pytest.mark.long
@pytest.mark.parametrize("word", ["setup", "teardown"])
def test_input_that_is_not_netavark_s(netavark: Netavark, word: str) -> None:
    """It is refused, and nothing has happened."""
    assert "KeyError('network_options')" in netavark.error(word, "/run/netns/x", stdin={})
    assert netavark.error(word, stdin={}) == f"{word} needs the path of a network namespace"
    assert "unknown command 'remove'" in netavark.error("remove", stdin={})


def test_a_container(netavark: Netavark) -> None:
    """Set-up and teardown, with the addresses that podman shows; a second teardown succeeds."""
    container = netavark.container(static_ips=["10.88.0.50"], static_mac="02:00:00:00:00:05")
    with made_namespace("one") as box:
        status = netavark.answer("setup", str(box.path), stdin=container)
        assert status["interfaces"]["eth0"] == {
            "mac_address": "02:00:00:00:00:05",
            "subnets": [{"ipnet": "10.88.0.50/24", "gateway": "10.88.0.1"}],
        }
        assert box.links() == {"eth0"}
        for _ in range(2):
            assert netavark.call("teardown", str(box.path), stdin=container).stdout == ""
        assert box.links() == set()
    assert netavark.leases() == set()


def test_a_failed_set_up_leaves_nothing(netavark: Netavark) -> None:
    """The plugin's own words are in the error."""
    (netavark.directory / "broken").write_text(
        '#!/bin/sh\n[ "$CNI_COMMAND" != ADD ] && exit\n'
        """echo '{"cniVersion": "1.0.0", "code": 100, "msg": "out of luck", "details": "today"}'; exit 1\n""",
        "ascii",
    )
    (netavark.directory / "broken").chmod(0o755)
    netavark.write({"type": "broken"})
    with made_namespace("one") as box:
        assert "out of luck" in netavark.error("setup", str(box.path), stdin=netavark.container())
        assert box.links() == set()
    assert netavark.leases() == set()


def test_an_address_that_plugins_ignore(netavark: Netavark) -> None:
    """`--mac-address` must not be lost silently; what was made is undone."""
    netavark.write(first="ptp")
    with made_namespace("one") as box:
        error = netavark.error("setup", str(box.path), stdin=netavark.container(static_mac="02:00:00:00:00:02"))
        assert error.startswith("the plugins of network blue have ignored --mac-address 02:00:00:00:00:02; see ")
        assert box.links() == set()
    assert netavark.leases() == set()


def test_ports_that_no_plugin_publishes(netavark: Netavark) -> None:
    """The container starts, with a warning: another of its networks may publish them."""
    container = netavark.container()
    container["port_mappings"] = [{"container_port": 80, "host_ip": "", "host_port": 80, "protocol": "tcp", "range": 1}]
    with made_namespace("one") as box:
        ended = netavark.call("setup", str(box.path), stdin=container)
        assert ended.stderr.startswith("cni: -p has no effect on network blue")
        netavark.call("teardown", str(box.path), stdin=container)


def test_a_set_up_after_a_kill(netavark: Netavark) -> None:
    """The same container's remains are deleted first, and those of containers that have no namespace any more."""
    with made_namespace("one") as first, made_namespace("two") as second:
        netavark.answer("setup", str(first.path), stdin=netavark.container("one"))
        netavark.answer("setup", str(second.path), stdin=netavark.container("two"))
    with made_namespace("three") as third:  # podman has never called teardown
        netavark.answer("setup", str(third.path), stdin=netavark.container("one"))
        assert len(netavark.leases()) == 1
        netavark.answer("setup", str(third.path), stdin=netavark.container("one"))
        assert third.links() == {"eth0"}
        netavark.answer("teardown", str(third.path), stdin=netavark.container("one"))
    assert netavark.leases() == set()


def test_gc(netavark: Netavark, monkeypatch: pytest.MonkeyPatch) -> None:
    """What podman does not have is deleted; what lives stays, and so does what other programs have attached."""
    podman = netavark.directory / "podman"
    podman.write_text("#!/bin/sh\necho kept\n", "ascii")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{netavark.directory}:{os.environ['PATH']}")
    monkeypatch.setenv("NETCONFPATH", str(netavark.directory / "net.d"))
    monkeypatch.setenv("CNI_PATH", PLUGINS)
    tool = str(COMMAND.with_name("cni-invoker"))
    with made_namespace("kept") as kept, made_namespace("one") as lost, made_namespace("other") as other:
        netavark.answer("setup", str(kept.path), stdin=netavark.container("kept"))
        netavark.answer("setup", str(lost.path), stdin=netavark.container("one"))
        subprocess.run([tool, "add", "blue", str(other.path)], check=True, capture_output=True)
        assert len(netavark.leases()) == 3
        assert netavark.call("gc", PLUGINS, stdin={}).returncode == 0
        assert (kept.links(), lost.links(), other.links()) == ({"eth0"}, set(), {"eth0"})
        podman.write_text("#!/bin/sh\necho no database >&2\nexit 1\n", "ascii")
        assert "has failed: no database" in netavark.error("gc", PLUGINS, stdin={})
        subprocess.run([tool, "del", "blue", str(other.path)], check=True)
        netavark.call("teardown", str(kept.path), stdin=netavark.container("kept"))
    assert netavark.leases() == set()


@pytest.mark.long
def test_teardown_needs_neither_list_nor_namespace(netavark: Netavark) -> None:
    """What was stored at set-up is enough; without it there is nothing to do."""
    with made_namespace("one") as box:
        netavark.answer("setup", str(box.path), stdin=netavark.container())
    (netavark.directory / "net.d/blue.conflist").unlink()
    assert netavark.call("teardown", "/run/netns/one", stdin=netavark.container()).returncode == 0
    assert netavark.leases() == set()
    assert netavark.call("teardown", "/run/netns/one", stdin=netavark.container()).returncode == 0


@pytest.mark.long
def test_two_interfaces(netavark: Netavark) -> None:
    """`podman network connect`: each interface has a record of its own."""
    with made_namespace("one") as box:
        first, second = netavark.container(), netavark.container(interface_name="eth1")
        netavark.answer("setup", str(box.path), stdin=first)
        netavark.answer("setup", str(box.path), stdin=second)
        assert netavark.call("teardown", str(box.path), stdin=first).returncode == 0
        assert box.links() == {"eth1"}
        assert netavark.call("teardown", str(box.path), stdin=second).returncode == 0
    assert netavark.leases() == set()
