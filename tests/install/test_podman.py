# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Debian 13's podman with the driver `cni`; `make test-podman` runs this (needs root and a Debian mirror).

The list is the one on the page docs/podman.md, which podman 4.3 has made with its own CNI.
"""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.install.machine import Machine, fetch_root
from tests.lab.debian import FetchError
from tests.lab.waiting import wait_until
from tests.pages import read_blocks

pytestmark = pytest.mark.timeout(900)  # a root directory is made at the first use

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs/podman.md"
PACKAGES: Final = (
    *("systemd", "systemd-sysv", "dbus", "podman", "netavark", "crun", "containernetworking-plugins", "iptables"),
    *("nftables", "busybox-static", "iproute2", "python3", "python3-click", "kmod", "passt", "uidmap"),
)
CONF: Final = '[containers]\npids_limit = 0\n[engine]\ncgroup_manager = "cgroupfs"\n'
"""The container of the machine may lack control groups."""
KILL: Final = """
import os, pathlib
for process in pathlib.Path("/proc").glob("[0-9]*"):
    words = (process / "cmdline").read_bytes().split(b"\\0")
    if words[0].endswith((b"podman", b"netavark")) or b"/usr/lib/netavark/cni" in words:
        os.kill(int(process.name), 9)
"""
ROOTLESS: Final = """
set -e
export XDG_RUNTIME_DIR=/run/user/$(id -u)
podman import image.tar busybox
podman network create -d cni --opt network=blue blue
podman run -d --name one --network blue -p 8081:80 busybox busybox httpd -f -h /
podman unshare --rootless-netns /usr/lib/netavark/cni gc
podman inspect one --format 'address {{.NetworkSettings.Networks.blue.IPAddress}}'
busybox wget -q -T 3 -O /dev/null http://127.0.0.1:8081/bin/busybox && echo answered
podman rm -f -t 0 one
podman network rm blue
ls .local/share/cni-netavark/cni/networks/blue .local/share/cni-netavark/cni/results
"""
UPLINK: Final = """
ip link add uplink type veth peer name wire
ip link set wire up
ip link set uplink up
ip address add 192.0.2.2/24 dev uplink
ip route add default via 192.0.2.1
chmod 666 /dev/net/tun
chmod 644 /home/user/image.tar
install -d -o user -g user -m 700 /run/user/$(id -u user)
"""
"""Rootless podman's pasta copies the addresses of an uplink. A session of the user would have made the directory."""
OUTSIDE: Final = """
echo 1 > /proc/sys/net/ipv4/ip_forward
ip netns add outside
ip link add to-outside type veth peer name eth0 netns outside
ip link set to-outside up
ip address add 198.51.100.1/24 dev to-outside
ip -n outside link set eth0 up
ip -n outside address add 198.51.100.9/24 dev eth0
ip -n outside route add default via 198.51.100.1
for port in 8001 8002; do ip netns exec outside busybox httpd -h / -p $port; done
"""
"""A host behind another link, with two web servers."""
COMMAND: Final = "#!/usr/bin/python3\nfrom netavark_plugin.plugin import main\nmain()\n"
SLEEP: Final = ("busybox", "sleep", "1000")
Document = dict[str, Any]


@pytest.fixture(name="machine", scope="module")
def boot_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A Debian 13 for all tests that do not reboot it."""
    with booted(tmp_path_factory.mktemp("machines")) as machine:
        yield machine


@contextmanager
def booted(directory: Path) -> Iterator[Machine]:
    """A Debian 13 with podman, the driver, the list `blue`, and a second one, `green`."""
    try:
        archive = fetch_root("trixie", "podman", PACKAGES)
    except FetchError as exc:
        pytest.skip(f"Debian 13 is not available: {exc}")
    with Machine(directory / "trixie", archive) as machine:
        homes = {name: name for name in ("cni_egress", "cni_plugin", "cni_tool")} | {"netavark": "netavark_plugin"}
        of_extras = [ROOT / "extras" / home / "src" / package for home, package in homes.items()]
        for package in (ROOT / "cni_invoker", *of_extras):
            place = machine.path("/usr/lib/python3/dist-packages") / package.name
            shutil.copytree(package, place, ignore=shutil.ignore_patterns("__pycache__"))
        put(machine, "/usr/lib/netavark/cni", COMMAND, mode=0o755)
        put(machine, "/opt/cni/bin/egress", COMMAND.replace("netavark_plugin", "cni_egress"), mode=0o755)
        put(machine, "/etc/containers/containers.conf", CONF)
        put(machine, "/etc/cni/net.d/blue.conflist", json.dumps(the_list(dnsname=False)))
        text = json.dumps(the_list(dnsname=False))
        for old, new in (("blue", "green"), ("cni-podman1", "cni-green"), ("10.89.0", "10.90.0")):
            text = text.replace(old, new)
        put(machine, "/etc/cni/net.d/green.conflist", text)
        machine.path("/root/image.tar").write_bytes(image())
        machine.run("podman", "import", "/root/image.tar", "busybox")
        yield machine


def the_list(*, dnsname: bool) -> Document:
    """The list on the page, as podman has made it, or without its last plugin, which Debian 13 does not have."""
    (block,) = read_blocks(PAGE, "json")
    document: Document = json.loads(block.text)
    assert document["plugins"][-1]["type"] == "dnsname"
    if not dnsname:
        del document["plugins"][-1]
    return document


def put(machine: Machine, path: str, text: str, *, mode: int = 0o644) -> None:
    """Write a file of the machine."""
    place = machine.path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")
    place.chmod(mode)


def image() -> bytes:
    """An image with busybox."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(shutil.which("busybox") or "", "bin/busybox")
    return packed.getvalue()


@pytest.fixture(name="networks")
def make_networks(machine: Machine) -> Iterator[Machine]:
    """The machine with the podman networks `blue` and `green`; nothing is left of the containers afterwards."""
    with created(machine):
        yield machine


@contextmanager
def created(machine: Machine) -> Iterator[None]:
    """The two networks, which are removed afterwards."""
    machine.run("podman", "network", "create", "-d", "cni", "--opt", "network=blue", "blue")
    machine.run("podman", "network", "create", "-d", "cni", "green")
    yield
    machine.run("podman", "rm", "--all", "--force", "--time", "0")
    machine.run("podman", "network", "rm", "blue", "green")
    assert leases(machine) == set()
    assert list(machine.path("/var/lib/cni/results").glob("*")) == []
    assert "CNI-DN" not in rules(machine)


def start(machine: Machine, name: str, *options: str, command: Sequence[str] = SLEEP) -> Document:
    """Start a container and return what podman shows about its networks."""
    machine.run("podman", "run", "--detach", "--name", name, *options, "busybox", *command)
    return networks_of(machine, name)


def serve(machine: Machine, *options: str) -> Document:
    """Start the container `web` on the network blue; its web server is published at port 8080."""
    publishing = ("--network", "blue", "-p", "8080:80")
    return start(machine, "web", *publishing, *options, command=("busybox", "httpd", "-f", "-h", "/"))


def networks_of(machine: Machine, name: str) -> Document:
    """What `podman inspect` shows."""
    (shown,) = json.loads(machine.run("podman", "inspect", name).stdout)
    return dict(shown["NetworkSettings"]["Networks"])


def leases(machine: Machine) -> set[str]:
    """The addresses that host-local has reserved."""
    return {file.name for file in machine.path("/var/lib/cni/networks").glob("*/10.*")}


def rules(machine: Machine) -> str:
    """The host's rules."""
    return machine.run("iptables-save").stdout


def inside(machine: Machine, name: str, *command: str) -> str:
    """Run an applet of busybox in a container, and return what it prints."""
    return machine.run("podman", "exec", name, "busybox", *command).stdout


def get(machine: Machine, address: str, port: int) -> bool:
    """Return whether a web server answers the host."""
    url = f"http://{address}:{port}/bin/busybox"
    return machine.run("busybox", "wget", "-q", "-T", "2", "-O", "/dev/null", url, check=False).returncode == 0


def test_containers_reach_each_other(networks: Machine) -> None:
    """Two containers of a list have the addresses that podman shows."""
    first = start(networks, "one", "--network", "blue")["blue"]
    second = start(networks, "two", "--network", "blue")["blue"]
    assert first["IPAddress"].startswith("10.89.0.")
    assert (first["IPPrefixLen"], first["Gateway"]) == (24, "10.89.0.1")
    assert first["MacAddress"] in inside(networks, "one", "ip", "link", "show", "eth0")
    inside(networks, "two", "httpd", "-h", "/")
    inside(networks, "one", "wget", "-q", "-O", "/dev/null", f"http://{second['IPAddress']}/bin/busybox")


def test_address_mac_and_ports(networks: Machine) -> None:
    """`--ip`, `--mac-address` and `-p` reach the plugins."""
    shown = serve(networks, "--ip", "10.89.0.77", "--mac-address", "02:00:00:00:00:77")["blue"]
    assert (shown["IPAddress"], shown["MacAddress"]) == ("10.89.0.77", "02:00:00:00:00:77")
    wait_until(lambda: get(networks, "10.89.0.77", 80), "the web server")
    gateway = "10.89.0.1"
    assert get(networks, gateway, 8080)
    networks.run("podman", "stop", "--time", "0", "web")
    assert not get(networks, gateway, 8080)
    networks.run("podman", "start", "web")
    wait_until(lambda: get(networks, gateway, 8080), "the web server after the restart")
    assert networks_of(networks, "web")["blue"]["IPAddress"] == "10.89.0.77"


def test_several_networks(networks: Machine) -> None:
    """A container on two lists; a third interface comes and goes."""
    shown = start(networks, "one", "--network", "blue,green")
    first = {one["IPAddress"] for one in shown.values()}
    assert [shown[name]["Gateway"] for name in ("blue", "green")] == ["10.89.0.1", "10.90.0.1"]
    second = start(networks, "two", "--network", "blue")["blue"]["IPAddress"]
    networks.run("podman", "network", "connect", "--ip", "10.90.0.50", "green", "two")
    assert "10.90.0.50/24" in inside(networks, "two", "ip", "-o", "-4", "address", "show", "eth1")
    assert leases(networks) == {*first, second, "10.90.0.50"}
    networks.run("podman", "network", "disconnect", "green", "two")
    assert "eth1" not in inside(networks, "two", "ip", "link", "show")
    assert leases(networks) == {*first, second}


def test_reload_and_restart(networks: Machine) -> None:
    """After `podman network reload`, as after firewalld's, and after a restart, the ports work again."""
    serve(networks)
    for command in (("network", "reload", "web"), ("restart", "--time", "0", "web")):
        networks.run("podman", *command)
        wait_until(lambda: get(networks, "10.89.0.1", 8080), f"the port after {command[0]}")
    assert len(leases(networks)) == 1


def kill_in_set_up(machine: Machine, name: str) -> None:
    """Kill podman, netavark and the driver while the last plugin of the list runs."""
    put(machine, "/opt/cni/bin/tuning", "#!/bin/sh\ntouch /run/slow\nexec sleep 60\n", mode=0o755)
    command = f"podman run -d --name {name} --network blue busybox {' '.join(SLEEP)}"
    machine.run("sh", "-c", f"{command} >/root/log 2>&1 &")
    wait_until(lambda: machine.path("/run/slow").exists(), "the last plugin")
    machine.run("python3", "-c", KILL)
    machine.path("/opt/cni/bin/tuning").unlink()
    machine.path("/run/slow").unlink()
    assert len(leases(machine)) == 1


def test_a_killed_set_up_is_repeated(networks: Machine) -> None:
    """The container can be started; the plugin that was left running is killed, and its address is freed."""
    kill_in_set_up(networks, "one")
    networks.run("podman", "start", "one")
    assert leases(networks) == {networks_of(networks, "one")["blue"]["IPAddress"]}
    assert "sleep 60" not in networks.run("busybox", "ps").stdout


def test_a_killed_set_up_is_collected(networks: Machine) -> None:
    """Podman forgets the container, and leaves its namespace: `gc` asks podman; what lives stays."""
    kill_in_set_up(networks, "lost")
    networks.run("podman", "rm", "--force", "--time", "0", "lost")
    kept = start(networks, "kept", "--network", "blue")["blue"]["IPAddress"]
    assert len(leases(networks)) == 2
    networks.run("/usr/lib/netavark/cni", "gc")
    assert leases(networks) == {kept}


def test_a_reboot(tmp_path: Path) -> None:
    """A container starts again, and nothing is left of one that does not; `tests/kernel` has the power failure."""
    with booted(tmp_path) as machine, created(machine):
        start(machine, "one", "--network", "blue")
        start(machine, "two", "--network", "blue")
        machine.reboot()
        machine.run("podman", "rm", "--force", "two")
        machine.run("podman", "start", "one")
        assert leases(machine) == {networks_of(machine, "one")["blue"]["IPAddress"]}


def test_guarded(networks: Machine) -> None:
    """The plugin `egress` at the end of a list guards podman's containers as it does Docker's."""
    text = json.dumps(the_list(dnsname=False) | {"name": "agents"}).replace("10.89.0", "10.91.0")
    document = json.loads(text.replace("cni-podman1", "cni-agents"))
    document["plugins"].append({"type": "egress", "allow": ["198.51.100.9:8001"]})
    put(networks, "/etc/cni/net.d/agents.conflist", json.dumps(document))
    networks.run("sh", "-euc", OUTSIDE)
    networks.run("podman", "network", "create", "-d", "cni", "agents")
    start(networks, "open", "--network", "blue")
    start(networks, "agent", "--network", "agents")

    def reaches(name: str, port: int) -> bool:
        command = ("podman", "exec", name, "busybox", "nc", "-w", "3", "198.51.100.9", str(port))
        return networks.run(*command, check=False).returncode == 0

    wait_until(lambda: reaches("open", 8001), "the web servers")
    assert [reaches("open", port) for port in (8001, 8002)] == [True, True]
    assert [reaches("agent", port) for port in (8001, 8002)] == [True, False]
    networks.run("nft", "flush", "ruleset")
    assert not reaches("agent", 8001)
    networks.run("podman", "rm", "--force", "--time", "0", "agent")
    networks.run("podman", "network", "rm", "agents")


def test_bad_input(networks: Machine) -> None:
    """Each error names what is wrong."""
    create = ("podman", "network", "create", "-d", "cni")
    put(networks, "/etc/cni/net.d/named.conflist", json.dumps(the_list(dnsname=True) | {"name": "named"}))
    for options, words in (
        (("--opt", "netwrok=blue", "other"), "unknown option 'netwrok'"),
        (("other",), "other"),
        (("named",), "dnsname: not found in "),
        (("--opt", "network=blue", "--subnet", "10.1.0.0/24", "other"), "--subnet"),
        (("--opt", "network=blue", "--internal", "other"), "--internal"),
    ):
        done = networks.run(*create, *options, check=False)
        assert done.returncode != 0
        assert words in done.stdout
    used = networks.run("podman", "run", "--rm", "--network", "blue", "--ip", "10.1.0.9", *SLEEP, check=False)
    assert used.returncode != 0
    assert "10.1.0.9" in used.stdout


def test_rootless(networks: Machine) -> None:
    """A user's containers run the plugins in the user's own network namespace, with state of the user's own."""
    networks.run("useradd", "--create-home", "--shell", "/bin/sh", "user")
    shutil.copy(networks.path("/root/image.tar"), networks.path("/home/user/image.tar"))
    networks.run("sh", "-euc", UPLINK)
    printed = networks.run("su", "-", "user", "-c", ROOTLESS).stdout.splitlines()
    assert "address 10.89.0.2" in printed
    assert "answered" in printed
    assert not [line for line in printed if line.startswith("10.")]  # of the last command: a lease
