# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network create --allow` and `cni-bridge egress`: a guarded network in one command, seen and changed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from cni_bridge_spec import get_objects, get_strings
from cnm_bridge.core.lists.guard import RESPONDER
from tests.lab import Container, Engine, Lab, wait_until
from tests.system.scene import Scene, bridge

COMMAND: Final = (sys.executable, "-m", "cnm_bridge")
DIRECTORY: Final = "/etc/cni/net.d"
pytestmark = pytest.mark.timeout(600)
_numbers = count(1)
_CLEANED: Final = """
nft 'table inet cni-egress; table bridge cni-egress; delete table inet cni-egress; delete table bridge cni-egress'
for family in -4 -6; do while ip $family rule delete priority 40 2>/dev/null; do :; done; done
rm -rf /run/cni-egress
"""


class Host:
    """A host with the plugin `egress`, and the commands."""

    def __init__(self, scene: Scene, engine: Engine) -> None:
        self.scene = scene
        self.lab: Lab = scene.lab
        self.dns = () if engine.version >= (28, 1) else ("--dns", RESPONDER)
        self.bridges: list[str] = []
        self.daemon = self.lab.spawn(str(Path(sys.executable).with_name("cni-egress")), "run", "--config", "/dev/null")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `cni-bridge`, whatever its exit status is."""
        return self.lab.run(*COMMAND, *arguments, check=False)

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401  # JSON
        """Return what a command prints as JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def make(self, *options: str) -> str:
        """Make a network; returns its name."""
        name = f"agents{next(_numbers)}"
        done = self.run("network", "create", name, "--subnet", self.scene.subnet().ipv4, *options)
        assert done.returncode == 0, done.stderr
        self.scene.adopt_network(name)
        self.scene.adopt_file(f"{DIRECTORY}/{name}.conflist")
        self.bridges.append(f"cni-{name}")
        return name

    def container(self, network: str, *options: str) -> Container:
        """Start a container that sleeps."""
        return self.scene.run(network, *self.dns, *options)

    def allowed(self, network: str) -> list[str]:
        """Return the entries in the list of a network."""
        document = json.loads(self.lab.read(f"{DIRECTORY}/{network}.conflist"))
        return list(get_strings(get_objects(document, "plugins")[-1], "allow"))


@pytest.fixture(name="host")
def make_host(private_scene: Scene, engine: Engine) -> Iterator[Host]:
    """A host on which the daemon `cni-egress` runs."""
    scene, lab = private_scene, private_scene.lab
    lab.write("/opt/cni/bin/egress", f"#!/bin/sh\nexec {Path(sys.executable).with_name('egress')}\n", mode=0o755)
    scene.adopt_file("/opt/cni/bin/egress")
    host = Host(scene, engine)
    wait_until(lambda: lab.path("/run/cni-egress/status.sock").exists(), "cni-egress runs", 60)
    try:
        yield host
    finally:
        host.daemon.kill(signal.SIGTERM)
        host.daemon.wait()
        lab.run("sh", "-c", _CLEANED, check=False)
        for link in host.bridges:
            lab.run("ip", "link", "del", link, check=False)


@pytest.mark.long
def test_from_a_command_to_a_guarded_container(host: Host) -> None:
    """One command makes the network; its list, its containers and what they may reach are shown and changed."""
    name = host.make("--allow", "203.0.113.0/24:443", "--allow", "www.example.com")
    listed = get_objects(json.loads(host.lab.read(f"{DIRECTORY}/{name}.conflist")), "plugins")
    assert [one["type"] for one in listed] == ["bridge", "firewall", "portmap", "egress"]
    web = host.container(name)
    (network,) = host.ask("egress", "ls", name)
    assert (network["network"], network["allow"]) == (name, ["203.0.113.0/24:443", "www.example.com"])
    assert [one["container"] for one in network["attachments"]] == [web.name]
    assert host.run("egress", "check", web.name, "203.0.113.7:443").returncode == 0
    refused = host.run("egress", "check", web.name, "203.0.113.7:22")
    assert (refused.returncode, f"refused: {web.name} to 203.0.113.7:22 on {name}" in refused.stdout) == (1, True)

    done = host.ask("egress", "allow", name, "203.0.113.0/24:22")
    assert (done["added"], done["containers"]) == (1, 1)
    assert host.allowed(name) == ["203.0.113.0/24:443", "www.example.com", "203.0.113.0/24:22"]
    assert host.run("egress", "check", web.name, "203.0.113.7:22").returncode == 0
    other = host.container(name)
    assert host.run("egress", "check", other.name, "203.0.113.7:22").returncode == 0

    done = host.ask("egress", "deny", name, "203.0.113.0/24:443", "WWW.example.com")
    assert (done["removed"], done["containers"]) == (2, 2)
    assert host.allowed(name) == ["203.0.113.0/24:22"]
    assert host.run("egress", "check", other.name, "203.0.113.7:443").returncode == 1
    assert host.run("egress", "check", web.name, "www.example.com:443").returncode == 1

    web.exec("sh", "-c", "nc -w 1 203.0.113.9 80 </dev/null || true")
    wait_until(lambda: "203.0.113.9:80" in host.run("egress", "log", name).stdout, "the refusal is logged", 30)
    (line,) = [one for one in host.run("egress", "log", name).stdout.splitlines() if "203.0.113.9:80" in one]
    assert line.split("  ")[1:] == [web.name, "203.0.113.9:80 tcp", "destination not allowed"]
    shown = host.run("egress", "ls").stdout
    assert (web.name in shown, other.name in shown) == (True, True)


@pytest.mark.long
def test_what_is_refused(host: Host) -> None:
    """The text says what to do, and nothing was changed."""
    name = host.make("--allow", "203.0.113.0/24")
    plain = host.make()
    for arguments, text in {
        ("egress", "allow", name, "https://a.example"): "a policy knows no https://; write a.example",
        ("egress", "deny", name, "a.example"): "a.example is not in the allow-list of",
        ("egress", "allow", plain, "a.example"): f"cni-bridge network create {plain} --allow ENTRY",
        ("egress", "allow", "bridge", "a.example"): "is of driver bridge",
        ("egress", "ls", "none"): "no network none",
    }.items():
        done = host.run(*arguments)
        assert done.returncode in {1, 2}
        assert text in done.stderr
    assert host.allowed(name) == ["203.0.113.0/24"]
    free = host.container(plain)
    done = host.run("egress", "check", free.name, "203.0.113.7:443")
    assert (done.returncode, "is on no guarded network" in done.stderr) == (2, True)


def test_an_allow_list_in_an_option(host: Host) -> None:
    """Docker cannot change it, so that the next start of a container would undo a change."""
    lists = host.scene.configure(bridge(host.scene.subnet()))
    internal = () if host.dns else ("--internal",)
    options = (*internal, "-o", "cni.egress.allow=203.0.113.0/24")
    made = host.scene.network(lists, *options)
    done = host.run("egress", "allow", made, "a.example")
    assert (done.returncode, "is in the option cni.egress.allow of its Docker network" in done.stderr) == (1, True)
    host.container(made)
    advised = f"{Path(sys.executable).parent}/{done.stderr.split('`')[1]} 203.0.112.7"
    assert f"changed: 1 of 1 containers on {lists}" in host.lab.run("sh", "-c", advised).stdout
    # Neither network may be on the bridge of the other.
    plain, null = host.make(), ("--ipam-driver", "null", "-o")
    refused = host.scene.creation_refusal(*null, f"cni.network={lists}")
    assert f"Docker network {made}, which is guarded" in refused
    refused = host.scene.creation_refusal(*null, f"cni.network={plain}", *options)
    assert f"the bridge cni-{plain} is also that of the Docker network {plain}, which is not guarded" in refused


def test_a_guard_ends_with_its_network(host: Host) -> None:
    """Nothing is left of it when the bridge has been removed, also while `cni-egress` does not run."""
    name = host.make("--allow", "203.0.113.0/24")
    host.lab.docker("rm", "-f", host.container(name).name)
    host.daemon.kill(signal.SIGTERM)
    host.daemon.wait()
    assert f"iif cni-{name} " in host.lab.run("ip", "rule").stdout
    done = host.run("network", "rm", "--configuration", name)
    assert done.stdout.splitlines()[-1] == f"the guard of bridge cni-{name} was removed", done.stderr
    assert "cni-agents" not in host.lab.run("sh", "-c", "ip rule; ip -6 rule; nft list ruleset").stdout


@pytest.mark.long
def test_an_audit(host: Host) -> None:
    """All passes, and what was reached becomes options of the next network."""
    name = host.make("--audit")
    probe = host.container(name)
    assert host.run("egress", "check", probe.name, "203.0.113.9:80").returncode == 0
    probe.exec("sh", "-c", "nc -w 1 203.0.113.9 80 </dev/null || true")
    wait_until(lambda: host.ask("egress", "learn", name) == ["203.0.113.9:80/tcp"], "it is logged", 30)
    assert host.run("egress", "learn", name).stdout == "--allow 203.0.113.9:80/tcp\n"


def test_a_dry_run(host: Host) -> None:
    """It shows the list and the docker command."""
    options = ("--subnet", host.scene.subnet().ipv4, "--allow", "a.example", "--strict")
    done = host.run("network", "create", "dry", *options, "--dry-run")
    assert "-o cni.egress.other-networks=disconnect" in done.stdout
    assert '{"type": "egress", "allow": ["a.example"], "capabilities": {"egress": true}}' in done.stdout
    assert ("--internal" in done.stdout) is not bool(host.dns)
    if host.dns:
        assert f"--dns {RESPONDER}" in done.stderr


@pytest.mark.long
def test_the_connectivity_test(host: Host) -> None:
    """It shows a connection that is allowed and one that is refused, and passes; doctor has nothing to say."""
    plain = host.make()
    server = host.container(plain)
    (address,) = (one.ip for one in server.link().addresses if not one.ip.is_link_local)
    host.lab.docker("exec", "--detach", server.name, "httpd", "-f", "-p", "443")
    name = host.make("--allow", str(address))
    done = host.run("test", name, "--json")
    steps = {one["step"]: (one["result"], one["detail"]) for one in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert steps["allowed"] == ("passed", f"{address}:443 is reached")
    assert steps["refused"] == ("passed", "192.0.2.1:8080, which the allow-list does not have")
    assert (steps["peer"][0], "gateway" in steps, "outside" in steps) == ("passed", False, False)
    found = json.loads(host.run("doctor", "--json").stdout)["findings"]
    assert not [one for one in found if one["code"].startswith("guarded-")]


@pytest.mark.long
def test_doctor(host: Host) -> None:
    """It finds tables that are missing, and the daemon that is down."""
    name = host.make("--allow", "a.example")
    host.container(name)
    host.daemon.kill(signal.SIGKILL)
    host.daemon.wait()
    host.lab.run("nft", "flush", "chain", "inet", "cni-egress", "guard")
    found = {one["code"]: one for one in json.loads(host.run("doctor", "--json").stdout)["findings"]}
    assert found["guarded-no-daemon"]["fix"] == "systemctl enable --now cni-egress"
    assert name in found["guarded-no-daemon"]["text"]
    assert "the tables cni-egress" in found["guarded-incomplete"]["text"]
    assert host.run("doctor").returncode == 1
