# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lab itself: what it provides to a test."""

import os
import signal
import sys
import tempfile
from ipaddress import ip_interface
from pathlib import Path

import pytest

from cni_invoker.documents.jsontypes import parse_json
from tests.lab import (
    CommandFailed,
    Engine,
    Lab,
    LabError,
    find_plugins,
    known_plugins,
    wait_until,
)
from tests.system.stand_in import STAND_IN

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a lab, which makes namespaces and mounts, needs root")


def test_runs_containers(docker_lab: Lab) -> None:
    """Docker runs a container on its own bridge, and inspect agrees with what the container has."""
    docker_lab.docker("run", "--detach", "--name", "first", "busybox", "sleep", "600")
    try:
        container = docker_lab.container("first")
        assert container.link().addresses == (ip_interface("172.17.0.2/16"),)
        assert container.endpoint("bridge").addresses == container.link().addresses
        assert container.endpoint("bridge").mac == container.link().mac
        assert container.exec("ping", "-c1", "-W2", "172.17.0.1").endswith("ms")
        assert [route["dev"] for route in container.ip("route")] == ["eth0", "eth0"]
    finally:
        docker_lab.docker("rm", "--force", "first")


@pytest.mark.smoke
def test_uses_the_given_engine(docker_lab: Lab, engine: Engine) -> None:
    """The programs of its directory are used, which may link to another engine's; all others are the machine's."""
    version = docker_lab.docker("version", "--format", "{{.Server.Version}}")
    assert version.startswith(".".join(map(str, engine.version)))
    rules = docker_lab.run("iptables-save", "-t", "filter").stdout
    assert ("DOCKER-USER" in rules) is not engine.nftables
    assert docker_lab.dockerd is not None
    script = "for pid in $(busybox pidof dockerd containerd); do readlink /proc/$pid/exe; done; which docker runc"
    dockerd, containerd, docker, runc = (Path(line) for line in docker_lab.run("sh", "-c", script).stdout.split())
    if engine.directory is None:
        assert dockerd.parent in (Path("/usr/sbin"), Path("/usr/bin"))
        assert docker.parent in (Path("/usr/sbin"), Path("/usr/bin"))
    else:
        assert dockerd == engine.directory / "usr/sbin/dockerd"
        assert containerd == (engine.directory / "usr/bin/containerd").resolve()
        assert docker == engine.directory / "usr/bin/docker"
    own = engine.directory and engine.directory / "usr/bin/runc"
    assert runc == (own if own and own.exists() else Path("/usr/sbin/runc"))


def test_uses_the_given_plugins() -> None:
    """The given plugins are in the directory of the machine's own, in the lab only."""
    known = known_plugins()
    for plugins in known:
        with Lab(dockerd=False, plugins=find_plugins(plugins.name)) as lab:
            hashes = [
                lab.run("sha256sum", f"{path}/bridge").stdout[:64] for path in ("/usr/lib/cni", plugins.directory)
            ]
            assert hashes[0] == hashes[1]
    if len(known) < 2:
        pytest.skip("only the machine's plugins are known; run `python -m tests.lab.fetch_plugins`")


def test_has_dockerd_and_the_image(engine: Engine) -> None:
    """A new lab is a complete Docker host: its dockerd answers, and has the image for containers."""
    with Lab(engine=engine) as lab:
        assert lab.docker("images", "--format", "{{.Repository}}") == "busybox"


@pytest.mark.smoke
def test_dockerd_can_be_restarted(engine: Engine) -> None:
    """A killed dockerd restarts with the same options and has its image and containers."""
    with Lab(engine=engine) as lab:
        assert lab.stop_dockerd() == 0
        lab.start_dockerd("--live-restore")
        lab.docker("run", "--detach", "--name", "first", "busybox", "sleep", "600")
        lab.restart_dockerd(signal.SIGKILL)
        assert lab.docker("ps", "--format", "{{.Names}}") == "first"
        with pytest.raises(LabError, match="dockerd#3 runs already"):
            lab.start_dockerd()


def test_two_at_once(docker_lab: Lab, engine: Engine) -> None:
    """Two labs at once use the same names, addresses and files without affecting each other."""
    with Lab(engine=engine) as other:
        for lab, text in ((docker_lab, "one"), (other, "two")):
            lab.docker("run", "--detach", "--name", "same", "busybox", "sleep", "600")
            lab.write("/var/lib/cni/networks/lan/10.1.0.2", text)
        assert docker_lab.container("same").link().addresses == other.container("same").link().addresses
        assert docker_lab.read("/var/lib/cni/networks/lan/10.1.0.2") == "one"
        assert docker_lab.namespaces.name != other.namespaces.name
    assert docker_lab.container("same").exec("echo", "alive") == "alive"
    docker_lab.docker("rm", "--force", "same")
    docker_lab.remove("/var/lib/cni/networks/lan")


def test_runs_on_the_unified_control_group_hierarchy(bare_lab: Lab) -> None:
    """A lab works, and leaves nothing behind, on a machine with control groups of version 2 only."""
    bare_lab.run("sh", "-c", "umount --recursive /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    script = "docker run --detach busybox sleep 600 && docker info --format '{{.CgroupVersion}}' && hostname"
    output = bare_lab.run(sys.executable, "-m", "tests.lab", "--", "sh", "-c", script).stdout.split()
    container, version, name = output[0], output[-2], output[-1]
    assert (len(container), version) == (64, "2")
    assert name not in bare_lab.run("ls", "/sys/fs/cgroup").stdout


def test_a_failed_command_shows_its_output(bare_lab: Lab) -> None:
    """The error of a failed command has its exit status and its output."""
    with pytest.raises(CommandFailed, match=r"sh -c .*: exit status 3\noutput\nerror") as caught:
        bare_lab.run("sh", "-c", "echo output; echo error >&2; exit 3")
    assert caught.value.returncode == 3
    assert bare_lab.run("false", check=False).returncode == 1
    assert bare_lab.run("tr", "a-z", "A-Z", input="text").stdout == "TEXT"


def test_a_command_without_end_is_killed(bare_lab: Lab) -> None:
    """The time limit of a command ends it and the processes that it started."""
    with pytest.raises(LabError, match=r"no end after 0\.2 s"):
        bare_lab.run("sh", "-c", "sleep 600 & sleep 600", timeout_s=0.2)
    wait_until(lambda: "sleep 600" not in bare_lab.run("busybox", "ps").stdout, "the end of both")


def test_files_are_the_labs_own(bare_lab: Lab) -> None:
    """Files that are written to the lab's directories exist in the lab and not on the machine."""
    name = bare_lab.namespaces.name  # a file name that the machine does not have
    for directory in (
        "/etc",
        "/etc/cni/net.d",
        "/opt/cni/bin",
        "/var/lib",
        "/var/lib/cni/networks",
        "/run",
        "/run/x/y",
    ):
        path = f"{directory}/{name}"
        bare_lab.write(path, "mine\n", mode=0o755)
        assert bare_lab.read(path) == "mine\n"
        assert bare_lab.path(path).stat().st_mode & 0o777 == 0o755
        assert not Path(path).exists()
    bare_lab.write("/etc/cni/net.d/20-obj.conflist", {"name": "obj", "plugins": []})
    assert parse_json(bare_lab.read("/etc/cni/net.d/20-obj.conflist").encode()) == {"name": "obj", "plugins": []}
    bare_lab.remove("/etc/cni/net.d")
    bare_lab.remove("/etc/cni/net.d")
    assert bare_lab.run("ls", "/etc/cni").stdout == ""


def test_the_callers_directory_is_shared_with_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a command writes into the caller's directory are kept, wherever the directory is."""
    with tempfile.TemporaryDirectory(dir="/var/lib") as directory:
        for path in (tmp_path, Path(directory)):
            monkeypatch.chdir(path)
            with Lab(dockerd=False) as lab:
                assert lab.run("pwd").stdout == f"{path}\n"
                lab.run("sh", "-c", "echo kept >file")
            assert (path / "file").read_text(encoding="utf-8") == "kept\n"
        monkeypatch.chdir("/")


def test_the_environment_of_commands(bare_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands do not inherit the caller's Docker and CNI settings; PATH begins with the virtual environment."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "CNI_PATH", "CNI_BRIDGE_STATE_DIR", "NETCONFPATH", "LISTEN_FDS"):
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("KEPT", "kept")
    env = bare_lab.run("env", env={"COLOUR": "blue"}).stdout
    assert "elsewhere" not in env
    assert {"KEPT=kept", "COLOUR=blue", "CNI_BRIDGE_LAB=1"} < set(env.splitlines())
    assert f"\nPATH={Path(sys.executable).parent}:" in f"\n{env}"


def test_the_daemon(bare_lab: Lab, tmp_path: Path) -> None:
    """A restarted daemon has the command and the environment of the first start, and the logs of both are kept."""
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN, encoding="utf-8")
    first = bare_lab.start_daemon("--option", command=[sys.executable, str(script)], env={"COLOUR": "blue"})
    assert first.log().startswith("stand-in ['--option'] blue\n")
    second = bare_lab.restart_daemon(signal.SIGKILL)
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, None)
    assert second.log().startswith("stand-in ['--option'] blue\n")
    with pytest.raises(LabError, match="daemon#2 runs already"):
        bare_lab.start_daemon()
    assert bare_lab.stop_daemon(signal.SIGTERM) == 0
    assert bare_lab.read("/run/lab/daemon.log") == first.log()


def test_a_daemon_that_does_not_start(bare_lab: Lab) -> None:
    """A daemon that ends, or never answers, is an error with the end of its log."""
    with pytest.raises(LabError, match="daemon ended with status 4; its log ends:\nmy last words"):
        bare_lab.start_daemon(command=["sh", "-c", "echo my last words; exit 4"])
    with pytest.raises(LabError, match=r"daemon#2 is ready: not within 0\.2 s; its log ends:\nstarting"):
        bare_lab.start_daemon(command=["sh", "-c", "echo starting; exec sleep 600"], timeout_s=0.2)


def test_a_background_process(bare_lab: Lab) -> None:
    """A spawned process receives signals itself, returns its exit status, and its log outlives the lab."""
    process = bare_lab.spawn("sh", "-c", "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.01; done")
    process.wait_ready(lambda: "ready" in process.log(), timeout_s=5)
    with pytest.raises(LabError, match=r"has not ended within 0\.05 s"):
        process.wait(timeout_s=0.05)
    process.kill(signal.SIGUSR1)
    assert process.wait() == 5
    bare_lab.close()
    assert process.log() == "ready\ncaught\n"
