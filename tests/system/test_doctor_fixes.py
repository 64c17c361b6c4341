# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Problems of a host are planted; `cni-bridge doctor` finds each, and finds nothing after its fix was typed."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str, parse_json
from tests.lab import Engine, Lab, wait_until
from tests.lab.systemd import Systemd
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import Scene, bridge
from tests.system.test_doctor import DOCTOR, examine

CHECKS = Path(__file__).parents[2] / "cnm_bridge/operator/doctor"
MAKERS = frozenset({"Finding", "error", "warning", "note"})
DOCKER_UNIT = """[Unit]
DefaultDependencies=no
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=lab.target
"""
NOT_TYPED = {
    "command-missing": "it installs a package of the distribution",
    "dhcp-daemon": "it starts a unit of the package; tests/system/test_dhcp.py starts the daemon itself",
    "engine-silent": "dockerd is no unit in a lab",
    "not-root": "it repeats the command as root",
    "plugin-without-driver": "the lab has no managed plugin",
    "guarded-incomplete": "the lab has no systemd; tests/system/test_guarded_commands.py compares the text",
    "guarded-no-daemon": "the lab has no systemd; tests/system/test_guarded_commands.py compares the command",
    "guarded-way-out": "the round that finds it takes minutes; its command is typed in test_guarded_networks.py",
}
"""The findings whose fix no test types: code → why."""
PATH = f"PATH={Path(sys.executable).parent}:$PATH"


def fix(lab: Lab, code: str) -> None:
    """Type the fix of a finding, which must be the only one that counts, into a shell; then nothing is found."""
    status, found = examine(lab)
    assert (status, list(found)) == (1, [code])
    done = lab.run("sh", "-c", f"{PATH}\n{get_str(found[code], 'fix')}", check=False)
    assert done.returncode == 0, f"{found[code]}\n{done.stdout}{done.stderr}"
    assert examine(lab) == (0, {})


@pytest.mark.long
def test_a_bridge_with_another_address(private_scene: Scene) -> None:
    """The plugin refuses to add a second one."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    network = private_scene.network(private_scene.configure(bridge(subnet)))
    lab.docker("rm", "--force", private_scene.run(network).name)
    lab.run("ip", "address", "del", f"{subnet.gateway}/24", "dev", subnet.bridge)
    lab.run("ip", "address", "add", "10.99.0.1/16", "dev", subnet.bridge)
    error = private_scene.run_refusal(network)
    assert "already has an IP address different from" in error
    assert "`cni-bridge doctor` shows the address" in error
    fix(lab, "bridge-address")
    private_scene.run(network)


def test_a_network_that_docker_only_lists(private_scene: Scene) -> None:
    """A refused `docker network connect` stays in Docker's list, and would be repeated when the container starts."""
    lab, (network, _), (refused, _) = private_scene.lab, private_scene.bridge_network(), private_scene.bridge_network()
    container = private_scene.run(network, "--stop-timeout", "0").name
    private_scene.refusal("network", "connect", "--driver-opt", "cni.nonsense=1", refused, container)
    lab.docker("network", "connect", private_scene.bridge_network()[0], container)  # which updates the list
    assert "is not connected" in private_scene.refusal("network", "disconnect", "--force", refused, container)
    fix(lab, "not-joined")


def test_dead_reservations(private_scene: Scene) -> None:
    """A reservation without a container, and one of a container that runs, which stays."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = private_scene.configure(bridge(subnet))
    network = private_scene.network(name)
    private_scene.run(network)
    directory = f"/var/lib/cni/networks/{name}"
    lab.run("touch", "-d", "1 hour ago", f"{directory}/10.80.{subnet.number}.2")
    lab.write(f"{directory}/10.80.{subnet.number}.77", f"{'e' * 64}\r\neth0")
    assert examine(lab) == (0, {})  # it may belong to an ADD that runs now
    lab.run("touch", "-d", "1 hour ago", f"{directory}/10.80.{subnet.number}.77")
    fix(lab, "reservations-dead")
    kept = f"10.80.{subnet.number}.2"
    assert lab.run("ls", directory).stdout.split() == [kept, "last_reserved_ip.0", "lock"]


def test_a_stretched_bridge(private_scene: Scene) -> None:
    """With br_netfilter Docker's policy drops what others on the LAN send."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    lab.run("ip", "link", "add", "br0", "type", "bridge")
    lab.run("ip", "link", "set", private_scene.UPLINK, "master", "br0")
    main, firewall = bridge(subnet)
    private_scene.network(
        private_scene.configure([{**main, "bridge": "br0", "isGateway": False, "ipMasq": False}, firewall])
    )
    fix(lab, "bridged-dropped")
    lab.run("ip", "link", "del", "br0")


def test_without_iptables(private_scene: Scene) -> None:
    """A list that runs it is an error; one with the backends of nftables is none."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    private_scene.configure([*bridge(subnet), PORTMAP], name="watched")
    iptables = lab.run("sh", "-c", "readlink -f $(command -v iptables)").stdout.strip()
    lab.run("mount", "--bind", "/dev/null", iptables)
    try:
        _, found = examine(lab)
    finally:
        lab.run("umount", iptables)
    assert get_str(found["command-missing"], "subject") == "command iptables"
    assert get_str(found["command-missing"], "fix") == "apt-get install iptables"


@pytest.mark.long
def test_settings_permissions_and_native_chains(private_scene: Scene) -> None:
    """What other programs and operators do to a host."""
    lab = private_scene.lab
    name = private_scene.configure(bridge(private_scene.subnet()))
    private_scene.run(private_scene.network(name))
    lab.run("sysctl", "-w", "net.ipv4.ip_forward=0")
    fix(lab, "sysctl")
    lab.run("chmod", "g+w", f"/etc/cni/net.d/{name}.conflist")
    fix(lab, "writable-by-others")
    lab.run("chmod", "755", "/var/lib/cni-bridge")
    fix(lab, "readable-by-others")
    lab.run("nft", "add table inet site")
    lab.run("nft", "add chain inet site forward { type filter hook forward priority 0; policy drop; }")
    lab.run("nft", "add rule inet site forward ct state established,related accept")
    fix(lab, "forward-dropped-by-nftables")
    lab.run("nft", "delete", "table", "inet", "site")


@pytest.mark.long
def test_a_daemon_that_does_not_run(private_scene: Scene) -> None:
    """Without systemd, a shell starts it in the background."""
    lab = private_scene.lab
    private_scene.network(private_scene.configure(bridge(private_scene.subnet())))
    lab.stop_daemon()
    status, found = examine(lab)
    assert (status, list(found)) == (1, ["daemon-stopped"])
    lab.run("sh", "-c", f"{PATH}\n({get_str(found['daemon-stopped'], 'fix')}) >/dev/null 2>&1")
    wait_until(lambda: examine(lab) == (0, {}), "the daemon", 30)
    lab.run("kill", lab.read("/var/lib/cni-bridge/lock").strip())
    wait_until(lambda: "daemon-stopped" in examine(lab)[1], "its end", 30)
    lab.start_daemon()


@pytest.fixture(name="booted")
def make_booted(engine: Engine) -> Iterator[tuple[Lab, Systemd]]:
    """A host with systemd, whose units of cni-bridge and of Docker are enabled."""
    with Lab(dockerd=False, engine=engine) as lab:
        lab.write("/run/systemd/system/docker.service", DOCKER_UNIT)
        systemd = Systemd(lab)
        systemd.control("enable", "--now", "docker.service", "cni-bridge.socket", "cni-bridge.service")
        yield lab, systemd
        systemd.control("stop", "cni-bridge.service", "cni-bridge.socket")


@pytest.mark.long
def test_units_at_boot(booted: tuple[Lab, Systemd]) -> None:
    """Units that are not enabled."""
    lab, systemd = booted
    assert not {code for code in all_findings(lab) if "boot" in code or "socket" in code}
    systemd.control("disable", "cni-bridge.socket", "cni-bridge.service")
    fix_unit(lab, "boot-disabled")
    systemd.control("disable", "cni-bridge.socket")
    fix_unit(lab, "socket-disabled")


def fix_unit(lab: Lab, code: str) -> None:
    """Type the fix of a finding about units; then it is not found any more."""
    lab.run("sh", "-c", get_str(all_findings(lab)[code], "fix"))
    assert code not in all_findings(lab)


def all_findings(lab: Lab) -> dict[str, JsonObject]:
    """Return all findings by code, notes among them."""
    report = as_object(parse_json(lab.run(*DOCTOR, "--json", check=False).stdout.encode()), "the report")
    return {get_str(one, "code"): one for one in get_objects(report, "findings")}


def test_each_fix_was_typed() -> None:
    """A test types the fix of each finding that has one, or there is a reason why none does."""
    typed = frozenset(typed_codes())
    with_fix = frozenset(code for file in CHECKS.glob("*.py") for code in codes_with_fix(ast.parse(file.read_text())))
    assert with_fix - typed == NOT_TYPED.keys()
    assert typed <= with_fix


def typed_codes() -> Iterator[str]:
    """Yield the codes whose fix a test of the doctor types: `fix(lab, CODE)`, or `found[CODE], "fix"`."""
    for name in ("test_doctor.py", "test_doctor_fixes.py"):
        lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
        text = "\n".join(line for line in lines if not line.lstrip().startswith("assert "))
        yield from re.findall(r'fix(?:_unit)?\(lab, "([a-z-]+)"\)', text)
        yield from re.findall(r"""\[['"]([a-z-]+)['"]\], ['"]fix['"]""", text)


def codes_with_fix(module: ast.Module) -> Iterator[str]:
    """Yield the codes of the findings that a module makes with a fix."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
            given = {one.arg: one.value for one in call.keywords}
            if "fix" in given:
                code = call.args[0] if call.args else given["code"]
                constants = (one.value for one in ast.walk(code) if isinstance(one, ast.Constant))
                yield from (one for one in constants if isinstance(one, str))
