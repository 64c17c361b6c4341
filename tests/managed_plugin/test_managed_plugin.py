# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The managed plugin: it runs the host's CNI plugins, and its state on the host outlives it."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, as_object, get_object, get_objects, parse_json, render_json
from tests.lab import Container, Lab, wait_until
from tests.managed_plugin.managed import (
    ADMIN,
    BUILT,
    DRIVER,
    LIMIT_S,
    PLUGIN,
    create_network,
    daemon_pids,
    enable,
    install,
    list_on,
    status,
)
from tests.managed_plugin.registry import REGISTRY, start_registry
from tests.pages import read_blocks
from tests.system.calls import wait_reconciled
from tests.system.scene import reaches

pytestmark = pytest.mark.timeout(600)  # Docker packs and unpacks the plugin, several times

PAGE = Path(__file__).parents[2] / "docs" / "managed-plugin.md"
GATEWAY = "10.91.0.1"
SOURCE = f"{REGISTRY}/cni-bridge"
VERSIONS = "one", "two"
_SLEEP = "sleep 599"
_HANGING = f"""\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}' ;;
ADD) touch /run/lab/hanging && exec {_SLEEP} ;;
esac
"""
_CAPABILITIES = {12, 19, 21}  # NET_ADMIN, SYS_PTRACE and SYS_ADMIN in linux/capability.h


def start(lab: Lab, name: str) -> Container:
    """Start a container on the network."""
    lab.docker("run", "-d", "--name", name, "--restart", "always", "--net", "blue", "busybox", "sleep", "3600")
    return lab.container(name)


def refusal(lab: Lab, *command: str) -> str:
    """Run a docker command that must fail; return its error."""
    done = lab.run("docker", *command, check=False)
    assert done.returncode != 0
    return done.stderr


def doctor(lab: Lab) -> str:
    """Return what the doctor shows, run as the page says."""
    (command,) = (block.text for block in read_blocks(PAGE, section="Install") if " doctor " in block.text)
    return lab.run("sh", "-e", "-c", command, check=False).stdout


def test_the_life_of_a_managed_plugin(lab: Lab) -> None:
    """Install, run, disable, replace, kill dockerd, remove: containers keep their network, and nothing is left."""
    lab.write("/etc/cni/net.d/10-lan.conflist", list_on("10.91.0.0/24"))
    install(lab)
    create_network(lab, "blue")
    before = lab.state()
    web = start(lab, "web")
    assert reaches(web, GATEWAY)
    assert "nothing found; " in doctor(lab)
    assert lab.run("ls", "/var/lib/cni/networks/lan").stdout.split()[0] == "10.91.0.2"
    assert "10.91.0.2/32" in lab.run("iptables-save").stdout

    start(lab, "removed")
    assert "is in use" in refusal(lab, "plugin", "disable", PLUGIN)
    lab.docker("plugin", "disable", "--force", PLUGIN)
    assert reaches(web, GATEWAY)  # the daemon is not needed for what runs
    assert refusal(lab, "run", "--rm", "--net", "blue", "busybox", "true")
    lab.docker("rm", "--force", "removed", timeout_s=LIMIT_S)  # Docker waits for the plugin
    enable(lab)
    wait_until(lambda: len(get_objects(status(lab), "endpoints")) == 1, "the teardown of the removed container", 60)
    assert [one["phase"] for one in get_objects(status(lab), "endpoints")] == ["joined"]

    lab.docker("plugin", "rm", "--force", PLUGIN)
    install(lab, "--reconcile-interval", "1")
    assert reaches(start(lab, "second"), GATEWAY)
    wait_reconciled(lab, ADMIN)
    assert get_object(status(lab), "engine")["isUp"]
    assert reaches(web, GATEWAY)

    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: _is_up(lab, "web"), "the container after the restart", 60)
    assert reaches(web, GATEWAY)

    lab.docker("rm", "--force", "web", "second")
    wait_until(lambda: status(lab)["endpoints"] == [], "the teardown", 60)
    assert lab.wait_clean(before) == ""
    lab.docker("network", "rm", "blue")
    lab.docker("plugin", "disable", PLUGIN)
    lab.docker("plugin", "rm", PLUGIN)


def test_disable_while_a_container_is_attached(lab: Lab) -> None:
    """The daemon ends by itself before Docker kills it, with the CNI plugin that hangs, and undoes the rest later."""
    hanging: JsonObject = {"type": "hanging"}
    network = list_on("10.91.0.0/24")
    lab.write("/etc/cni/net.d/10-lan.conflist", {**network, "plugins": [*get_objects(network, "plugins"), hanging]})
    lab.write("/opt/cni/bin/hanging", _HANGING, mode=0o755)
    install(lab)
    create_network(lab, "blue")
    before = lab.state()
    lab.spawn("docker", "run", "--name", "web", "--net", "blue", "busybox", "true")
    wait_until(lambda: lab.path("/run/lab/hanging").exists(), "the plugin that hangs", 60)
    lab.docker("plugin", "disable", "--force", PLUGIN)
    assert lab.dockerd is not None
    assert "daemon.stopped" in lab.dockerd.log()
    assert lab.run("pgrep", "--full", _SLEEP, check=False).stdout == ""
    enable(lab)
    wait_until(lambda: status(lab)["endpoints"] == [], "the teardown", 60)
    lab.docker("rm", "--force", "web")
    assert lab.wait_clean(before) == ""


def test_upgrade_from_a_registry(lab: Lab, tmp_path: Path) -> None:
    """A version of a registry is installed, upgraded and rolled back: containers and settings stay."""
    lab.write("/etc/cni/net.d/10-lan.conflist", list_on("10.91.0.0/24"))
    start_registry(lab)
    for version in VERSIONS:
        described = tmp_path / version
        subprocess.run(("cp", "-a", "--link", str(BUILT), str(described)), check=True)
        config = as_object(parse_json((BUILT / "config.json").read_bytes()), "config.json")
        (described / "config.json").unlink()
        (described / "config.json").write_bytes(render_json({**config, "description": version}))
        lab.docker("plugin", "create", f"{SOURCE}:{version}", str(described), timeout_s=LIMIT_S)
        lab.docker("plugin", "push", f"{SOURCE}:{version}", timeout_s=LIMIT_S)
        lab.docker("plugin", "rm", f"{SOURCE}:{version}")
    granted = ("--grant-all-permissions", f"{SOURCE}:{VERSIONS[0]}", "CNI_BRIDGE_LOG_LEVEL=debug")
    lab.docker("plugin", "install", "--alias", PLUGIN, *granted, timeout_s=LIMIT_S)
    create_network(lab, "blue")
    before = lab.state()
    web = start(lab, "web")
    upgrade = ("plugin", "upgrade", "--grant-all-permissions", "--skip-remote-check", PLUGIN)
    assert "must be disabled" in refusal(lab, *upgrade, f"{SOURCE}:{VERSIONS[1]}")
    for version in reversed(VERSIONS):
        lab.docker("plugin", "disable", "--force", PLUGIN)
        lab.docker(*upgrade, f"{SOURCE}:{version}", timeout_s=LIMIT_S)
        enable(lab)
        assert version in lab.docker("plugin", "inspect", "--format", "{{.Config.Description}}", PLUGIN)
        assert "CNI_BRIDGE_LOG_LEVEL=debug" in lab.docker("plugin", "inspect", "--format", "{{.Settings.Env}}", PLUGIN)
        assert [one["phase"] for one in get_objects(status(lab), "endpoints")] == ["joined"]
        assert reaches(web, GATEWAY)
        assert reaches(start(lab, version), GATEWAY)
        lab.docker("rm", "--force", version)
    lab.docker("rm", "--force", "web")
    assert lab.wait_clean(before) == ""


def test_what_the_plugin_may_do(lab: Lab) -> None:
    """Its daemon has three capabilities more than each container, and the host's mounts without any of its own."""
    install(lab)
    inspected = lab.docker_json("plugin", "inspect", "--format", "{{json .Settings}}", PLUGIN)
    assert isinstance(inspected, dict)
    assert inspected["Mounts"] == []
    (pid,) = daemon_pids(lab)
    lab.docker("run", "-d", "--name", "plain", "--net", "none", "busybox", "sleep", "3600")
    always = _capabilities(lab, lab.docker("inspect", "--format", "{{.State.Pid}}", "plain"))
    assert _capabilities(lab, pid) - always == _CAPABILITIES
    lab.docker("rm", "--force", "plain")
    assert lab.run("readlink", f"/proc/{pid}/ns/mnt").stdout == lab.run("readlink", "/proc/1/ns/mnt").stdout
    lab.docker("plugin", "disable", PLUGIN)
    assert daemon_pids(lab) == []
    lab.docker("plugin", "rm", PLUGIN)


def test_a_missing_privilege(lab: Lab) -> None:
    """The daemon does not start, and says what it could not do."""
    lab.run("mkdir", "-p", "/run/docker/plugins")
    launcher = (sys.executable, "-m", "cnm_bridge.server.managed_plugin")
    done = lab.run("setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace", *launcher, check=False)
    assert done.returncode == 1
    assert "Permission denied: '/proc/1/ns/mnt'" in done.stderr
    assert "Traceback" not in done.stderr


def test_beside_the_package(lab: Lab) -> None:
    """Under its documented name it leaves the containers of the host's own daemon alone, when dockerd restarts, too."""
    lab.write("/etc/cni/net.d/10-lan.conflist", list_on("10.91.0.0/24"))
    lab.start_daemon()
    lab.docker("network", "create", "-d", "cni-bridge", "--ipam-driver", "null", "-o", "cni.network=lan", "green")
    lab.docker(
        "run", "-d", "--name", "web", "--restart", "unless-stopped", "--net", "green", "busybox", "sleep", "3600"
    )
    page = read_blocks(PAGE, section="Install")[0].text
    lab.run("sh", "-e", "-c", page.replace("make plugin\n", "").replace("build/plugin", str(BUILT)), timeout_s=LIMIT_S)
    start(lab, "other")  # on the network that the page makes
    lab.restart_dockerd()
    for one in ("web", "other"):
        wait_until(partial(_is_up, lab, one), f"the container {one} after the restart", 60)
        assert reaches(lab.container(one), GATEWAY)


def test_a_plugin_that_is_slow_to_answer(lab: Lab) -> None:
    """Docker shows it as enabled and does not find its driver; the doctor says so, and its command helps."""
    lab.write("/etc/cni/net.d/10-lan.conflist", list_on("10.91.0.0/24"))
    lab.docker("plugin", "create", PLUGIN, str(BUILT), timeout_s=LIMIT_S)
    enabling = lab.spawn("docker", "plugin", "enable", "--timeout", "2", PLUGIN)
    wait_until(lambda: daemon_pids(lab) != [], "the daemon", 60)
    (pid,) = daemon_pids(lab)
    lab.run("kill", "-STOP", pid)
    assert enabling.wait(LIMIT_S) == 0  # Docker asks again, for half a minute
    lab.run("kill", "-CONT", pid)
    assert lab.docker("plugin", "inspect", "--format", "{{.Enabled}}", PLUGIN) == "true"
    wait_until(lambda: lab.path(ADMIN).exists(), "the daemon's start", 60)
    create = ("network", "create", "-d", DRIVER, "--ipam-driver", "null", "-o", "cni.network=lan", "blue")
    assert f"could not resolve driver {DRIVER} in registry" in refusal(lab, *create)
    fix = f"docker plugin disable --force {DRIVER} && docker plugin enable {DRIVER}"
    assert fix in " ".join(doctor(lab).split())
    lab.run("sh", "-e", "-c", fix, timeout_s=LIMIT_S)
    wait_until(lambda: lab.path(ADMIN).exists(), "the daemon's start", 60)
    assert "without-driver" not in doctor(lab)
    create_network(lab, "blue")


def test_a_wrong_name(lab: Lab) -> None:
    """A short name of the driver is Docker's own error; the whole name is that of `docker plugin ls`."""
    lab.write("/etc/cni/net.d/10-lan.conflist", list_on("10.91.0.0/24"))
    install(lab)
    assert PLUGIN in refusal(lab, "network", "create", "-d", PLUGIN, "--ipam-driver", "null", "blue")
    assert lab.docker("plugin", "ls", "--format", "{{.Name}}") == DRIVER
    lab.docker("plugin", "disable", PLUGIN)
    lab.docker("plugin", "rm", PLUGIN)


def _capabilities(lab: Lab, pid: str) -> set[int]:
    """Return the numbers of a process's effective capabilities."""
    (line,) = (line for line in lab.read(f"/proc/{pid}/status").splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    return {number for number in range(effective.bit_length()) if effective >> number & 1}


def _is_up(lab: Lab, name: str) -> bool:
    return lab.run("docker", "inspect", "--format", "{{.State.Running}}", name, check=False).stdout.strip() == "true"
