# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The package on a minimal Debian or Ubuntu with systemd as process 1; `make test-deb` runs this (needs root)."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.install.machine import Machine
from tests.install.packages import RELEASES, build_package, fetch_system
from tests.lab.debian import FetchError, run_program
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)  # a root directory is made, and a package is built

UNITS = ("cni-bridge.socket", "cni-bridge-admin.socket", "cni-bridge.service")
DHCP = "cni-bridge-dhcp.service"
EGRESS = "cni-egress.service"
RESPONDER = "169.254.53.53"
INSTANCE = (("cni-bridge", "socket"), ("cni-bridge-admin", "socket"), ("cni-bridge", "service"))
LIST = """
{ "cniVersion": "1.0.0", "name": "blue", "plugins": [
    { "type": "bridge", "bridge": "cni-blue", "isGateway": true,
      "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.22.0.0/16" }]] } },
    { "type": "firewall" } ] }
"""
IMAGE = """
mkdir -p /tmp/image/bin
cp /bin/busybox /tmp/image/bin/
tar -C /tmp/image -c . | docker import - box
"""


@pytest.fixture(name="suite", scope="module", params=RELEASES)
def choose_suite(request: pytest.FixtureRequest) -> str:
    """A release of Debian or Ubuntu; one whose packages cannot be had is skipped."""
    suite = str(request.param)
    try:
        fetch_system(suite)
    except FetchError as exc:
        pytest.skip(f"{suite} is not available: {exc}")
    return suite


@pytest.fixture(name="package", scope="module")
def package_of_suite(suite: str) -> Path:
    """The package for the release."""
    return build_package(suite)


@pytest.fixture(name="machine")
def boot_machine(suite: str, tmp_path: Path) -> Iterator[Machine]:
    """A minimal system with Docker, on which cni-bridge has never been."""
    with Machine(tmp_path / suite, fetch_system(suite)) as machine:
        configuration = machine.path("/etc/cni/net.d/10-blue.conflist")
        configuration.parent.mkdir(parents=True, exist_ok=True)
        configuration.write_text(LIST)
        machine.run("sh", "-euc", IMAGE)
        yield machine


def test_lintian_is_content(package: Path) -> None:
    """Lintian finds no error and gives no warning; what is overridden has its reason beside it."""
    done = subprocess.run(
        ("lintian", "--allow-root", "--fail-on", "error,warning", str(package)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_life_of_a_package(machine: Machine, package: Path, tmp_path: Path) -> None:
    """Install, run, reboot, upgrade, downgrade, remove, purge: containers keep their network, and nothing is left."""
    before = _files(machine)

    install(machine, package)
    check_installed(machine)
    machine.run("systemctl", "enable", "--now", DHCP)

    machine.run("docker", "network", "create", "-d", "cni-bridge", "--ipam-driver", "null", "blue")
    run = ("docker", "run", "--net", "blue")
    machine.run(*run, "--detach", "--name", "web", "--restart", "always", "box", "busybox", "sleep", "1d")
    assert address(machine).startswith("10.22.")

    machine.reboot()
    wait_until(lambda: is_running(machine), "the container after the reboot", 60.0)
    assert address(machine).startswith("10.22.")
    assert unit_state(machine, DHCP) == ("enabled", "active")
    wait_until(lambda: machine.path("/run/cni/dhcp.sock").is_socket(), "the socket of the DHCP daemon", 30.0)

    process, known, leases = pid(machine), address(machine), main_pids(machine, DHCP)
    newer = with_version(package, "9.0", tmp_path)
    started = daemon_pids(machine)
    add_instance(machine)
    install(machine, newer)
    assert not started & daemon_pids(machine)
    assert len(daemon_pids(machine)) == 2
    assert (pid(machine), main_pids(machine, DHCP)) == (process, leases)
    assert machine.run("cni-bridge", "ls").stdout.count("joined") == 1
    machine.run(*run, "--rm", "box", "busybox", "ping", "-c", "1", "-W", "5", address(machine))

    exported = machine.run("cni-bridge", "state", "export").stdout
    refuse_downgrade(machine, package)
    assert pid(machine) == process
    go_back(machine, package, exported)
    assert (pid(machine), address(machine)) == (process, known)
    assert machine.run("cni-bridge", "ls").stdout.count("joined") == 1
    machine.run("cni-bridge", "inspect", "--check")

    for action in ("--remove", "--purge"):
        kept = machine.run("dpkg", action, "cni-bridge", check=False)
        assert kept.returncode != 0
        assert "container web" in kept.stdout
        assert machine.run("cni-bridge", "ls").stdout.count("joined") == 1

    machine.run("docker", "rm", "--force", "web")
    kept = machine.run("dpkg", "--remove", "cni-bridge", check=False)
    assert "container guest" in kept.stdout
    remove_instance(machine)
    machine.run("docker", "network", "rm", "blue")
    machine.run("cni-bridge", "status", "--wait", "60")
    machine.run("dpkg", "--remove", "cni-bridge")
    assert main_pids(machine, *UNITS, DHCP) == set()
    assert machine.path("/var/lib/cni-bridge/leveldb").is_dir()
    assert machine.path("/etc/cni-bridge/config.toml").exists()
    machine.run("dpkg", "--purge", "cni-bridge")
    assert sorted(_files(machine) - before) == []
    assert not machine.path("/run/docker/plugins/cni-bridge.sock").exists()


def test_a_guarded_network(machine: Machine, package: Path) -> None:
    """Its containers are guarded before and after a reboot, and the service of names runs as a user of its own."""
    install(machine, package)
    made = ("cni-bridge", "network", "create", "agents", "--subnet", "10.66.0.0/24")
    refused = machine.run(*made, "--allow", "api.example.com", check=False)
    assert f"systemctl enable --now {EGRESS.removesuffix('.service')}" in refused.stdout
    machine.run("systemctl", "enable", "--now", EGRESS)
    machine.run(*made, "--allow", "api.example.com", "--allow", "192.0.2.1")
    run = ("docker", "run", "--net", "agents", "--dns", RESPONDER, "--detach", "--name", "web", "--restart", "always")
    machine.run(*run, "box", "busybox", "sleep", "1d")
    check_guarded(machine)
    machine.reboot()
    wait_until(lambda: is_running(machine), "the container after the reboot", 60.0)
    check_guarded(machine)
    (process,) = main_pids(machine, EGRESS)
    assert machine.run("stat", "--format", "%U", f"/proc/{process}").stdout.strip() == "cni-egress"
    machine.run("docker", "rm", "--force", "web")
    machine.run("cni-bridge", "network", "rm", "agents")
    machine.run("dpkg", "--purge", "cni-bridge")


def check_guarded(machine: Machine) -> None:
    """Check that the container `web` is guarded."""
    assert unit_state(machine, EGRESS) == ("enabled", "active")
    closed = machine.run("docker", "exec", "web", "busybox", "nc", "-w", "9", "198.51.100.9", "443", check=False)
    assert "refused" in closed.stdout
    assert machine.run("cni-bridge", "egress", "check", "web", "192.0.2.1:443", check=False).returncode == 0
    assert machine.run("cni-bridge", "egress", "check", "web", "198.51.100.9:443", check=False).returncode == 1


def check_installed(machine: Machine) -> None:
    """Check that commands, pages and completions are there, and that all units run but that of the DHCP daemon."""
    assert [unit_state(machine, unit) for unit in UNITS] == [("enabled", "active")] * len(UNITS)
    assert unit_state(machine, DHCP) == ("disabled", "inactive")
    for command in commands(machine):
        assert machine.path(f"/usr/share/man/man1/cni-bridge-{command}.1.gz").exists(), command
    for command in ("cni-bridge", "cni-egress", "cni-invoker", "cni-ipam-etcd"):
        assert machine.path(f"/usr/share/man/man1/{command}.1.gz").exists()
        assert machine.path(f"/usr/share/bash-completion/completions/{command}").read_text("utf-8")
    assert machine.run("cni-invoker", "validate", "blue", check=False).returncode == 0
    assert "api_version" in machine.run("/usr/lib/netavark/cni", "info").stdout


def install(machine: Machine, package: Path, *, check: bool = True) -> str:
    """Install a package as an administrator does, and return what was printed."""
    shutil.copy(package, machine.path("/root/"))
    return machine.run("dpkg", "--install", f"/root/{package.name}", check=check).stdout


def refuse_downgrade(machine: Machine, older: Path) -> None:
    """Install an older package in place of version 9.0, which must fail and change nothing."""
    before = byte_code(machine)
    refused = install(machine, older, check=False)
    assert "version 9.0 is installed" in refused
    assert "nothing was changed" in refused
    assert "9.0" in machine.run("dpkg-query", "-W", "cni-bridge").stdout
    assert before
    assert byte_code(machine) >= before


def go_back(machine: Machine, older: Path, exported: str) -> None:
    """Install an older package in place of a newer one, as docs/installing.md says; containers stay."""
    machine.path("/root/state.json").write_text(exported, "utf-8")
    units = ("cni-bridge.socket", "cni-bridge.service")
    machine.run("systemctl", "stop", *units)
    machine.run("mv", "/var/lib/cni-bridge/leveldb", "/root/newer")
    install(machine, older)
    machine.run("systemctl", "stop", *units)
    machine.run("cni-bridge", "state", "import", "--replace", "/root/state.json")
    machine.run("systemctl", "start", *units)


def byte_code(machine: Machine) -> set[str]:
    """Return the files with byte code that the package has."""
    return set(machine.run("find", "/usr/lib/cni-bridge", "-name", "*.pyc").stdout.split())


def with_version(package: Path, version: str, where: Path) -> Path:
    """Return the same package with a newer version."""
    tree = where / "repacked"
    run_program("dpkg-deb", "--raw-extract", str(package), str(tree))
    old = run_program("dpkg-deb", "--field", str(package), "Version").strip()
    for name in ("control", "preinst"):
        file = tree / "DEBIAN" / name
        file.write_text(file.read_text("utf-8").replace(old, version), "utf-8")
    newer = where / f"cni-bridge_{version}.deb"
    run_program("dpkg-deb", "--build", "--root-owner-group", str(tree), str(newer))
    return newer


def add_instance(machine: Machine) -> None:
    """Start a second instance, `blue`, with a container `guest`."""
    machine.run("cp", "/etc/cni-bridge/config.toml", "/etc/cni-bridge/blue.toml")
    machine.run("systemctl", "enable", "--now", "cni-bridge@blue")
    machine.run(
        "docker", "network", "create", "-d", "blue", "--ipam-driver", "null", "-o", "cni.network=blue", "second"
    )
    machine.run("docker", "run", "--net", "second", "--detach", "--name", "guest", "box", "busybox", "sleep", "1d")


def remove_instance(machine: Machine) -> None:
    """Remove the second instance; its state stays."""
    machine.run("docker", "rm", "--force", "guest")
    machine.run("docker", "network", "rm", "second")
    machine.run("systemctl", "disable", "--now", *(f"{name}@blue.{kind}" for name, kind in INSTANCE))


def commands(machine: Machine) -> list[str]:
    """Return the commands of `cni-bridge`."""
    shown = machine.run("cni-bridge", "--help").stdout
    shown = shown[shown.index("Start:\n") : shown.index("Examples:\n")]
    return [line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2] != " "]


def daemon_pids(machine: Machine) -> set[str]:
    """Return the processes of the daemons that run."""
    return main_pids(machine, "cni-bridge.service", "cni-bridge@blue.service")


def main_pids(machine: Machine, *units: str) -> set[str]:
    """Return the processes of those of some units that run."""
    shown = machine.run("systemctl", "show", "--property=MainPID", "--value", *units).stdout.split()
    return set(shown) - {"0"}


def unit_state(machine: Machine, unit: str) -> tuple[str, str]:
    """Return whether a unit is enabled, and whether it runs."""
    enabled = machine.run("systemctl", "is-enabled", unit, check=False)
    active = machine.run("systemctl", "is-active", unit, check=False)
    return enabled.stdout.strip(), active.stdout.strip()


def inspect(machine: Machine, template: str) -> str:
    """Return a property of the container `web`."""
    return machine.run("docker", "inspect", "--format", template, "web", check=False).stdout.strip()


def address(machine: Machine) -> str:
    """Return the container's address on the network."""
    return inspect(machine, "{{.NetworkSettings.Networks.blue.IPAddress}}")


def pid(machine: Machine) -> str:
    """Return the container's process."""
    return inspect(machine, "{{.State.Pid}}")


def is_running(machine: Machine) -> bool:
    """Return whether the container runs."""
    return inspect(machine, "{{.State.Running}}") == "true"


def _files(machine: Machine) -> set[str]:
    """Return the files whose path has our name, except those that dpkg and systemd keep about any package."""
    found = machine.run("find", "/etc", "/usr", "/var", "/run", "-xdev", "-name", "*cni-bridge*").stdout.split()
    return {path for path in found if not path.startswith(("/var/lib/dpkg/", "/var/cache/", "/run/systemd/"))}
