# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon ends and starts again while containers run; nobody notices, and nothing is forgotten."""

import signal

import pytest

from spec import JsonObject
from tests.lab import CommandFailed, Lab
from tests.lab.waiting import wait_until
from tests.system.scene import Scene, bridge, reaches, wait_said

ENDS = pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])


@ENDS
def test_restart_while_a_container_runs(private_scene: Scene, how: signal.Signals) -> None:
    """The container keeps its network without the daemon; afterwards it can be stopped, started and removed."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    lab.stop_daemon(how)
    assert reaches(container, subnet.gateway)
    lab.start_daemon()
    assert reaches(container, subnet.gateway)
    lab.docker("stop", "-t", "0", container.name)
    stopped = f"containers: {container.name}"
    wait_until(lambda: lab.wait_clean(before, timeout_s=0) == stopped, "nothing is left but the stopped container")
    lab.docker("start", container.name)
    assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.smoke
@ENDS
def test_remove_after_restart(private_scene: Scene, how: signal.Signals) -> None:
    """A container of an earlier life of the daemon is removed, and its network, without a trace."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    before = lab.state()
    container = private_scene.run(network)
    lab.restart_daemon(how)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""
    lab.docker("network", "rm", network)


def test_new_containers_after_restart(private_scene: Scene) -> None:
    """The daemon knows its networks again, those bound by name included."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    network = private_scene.network(None, name=private_scene.configure(bridge(subnet)))
    lab.restart_daemon(signal.SIGKILL)
    assert reaches(private_scene.run(network), subnet.gateway)


def test_a_container_removed_while_the_daemon_is_away(private_scene: Scene) -> None:
    """Docker waits for a daemon that is being restarted, and the removal is complete."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    before = lab.state()
    container = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    removal = lab.spawn("docker", "rm", "-f", container.name)
    lab.start_daemon()
    assert removal.wait(60) == 0
    assert lab.wait_clean(before) == ""


def test_killed_in_the_middle_of_a_create(private_scene: Scene) -> None:
    """What a killed daemon had begun is undone by its next life before it answers Docker, and the plugin is ended."""
    lab = private_scene.lab
    private_scene.plugin("slow", '[ "$CNI_COMMAND" = ADD ] || exit 0; echo $$ >/run/slow-began; exec sleep 600')
    network = private_scene.network(private_scene.configure([*bridge(private_scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    start = lab.spawn("docker", "run", "--rm", "--net", network, "busybox", "true")
    wait_for_file(lab, "/run/slow-began")
    lab.stop_daemon(signal.SIGKILL)
    lab.start_daemon()
    assert start.wait(60) != 0
    lab.remove("/run/slow-began")
    assert lab.wait_clean(before) == ""


def test_sigterm_lets_a_create_finish(private_scene: Scene) -> None:
    """A daemon that is told to end answers what it has begun."""
    lab = private_scene.lab
    private_scene.plugin(
        "slow",
        'cat >/run/slow-stdin; [ "$CNI_COMMAND" = ADD ] || exit 0; sleep 1; exec /opt/cni/bin/pass </run/slow-stdin',
    )
    private_scene.plugin("pass", PASS)
    subnet = private_scene.subnet()
    network = private_scene.network(private_scene.configure([*bridge(subnet), {"type": "slow"}]))
    start = lab.spawn("docker", "run", "-d", "--name", "survivor", "--net", network, "busybox", "sleep", "3600")
    wait_for_file(lab, "/run/slow-stdin")
    assert lab.stop_daemon(signal.SIGTERM) == 0
    lab.start_daemon()
    assert start.wait(60) == 0
    assert reaches(lab.container("survivor"), subnet.gateway)
    lab.docker("rm", "-f", "survivor")
    lab.remove("/run/slow-stdin")


def test_what_is_owed_is_done_at_the_next_start(private_scene: Scene) -> None:
    """A DEL that failed, in a daemon that was killed then, is done by the next one before it answers."""
    lab = private_scene.lab
    private_scene.plugin("moody", f'[ "$CNI_COMMAND" = DEL ] && [ -e /run/bad-mood ] && exit 1; {PASS}')
    network = private_scene.network(
        private_scene.configure([*bridge(private_scene.subnet(), ipv6=True), {"type": "moody"}])
    )
    before = lab.state()
    container = private_scene.run(network)
    lab.write("/run/bad-mood", "")
    lab.docker("rm", "-f", container.name)
    wait_said(lab, "endpoint.teardown_pending")
    assert "reservation" in lab.wait_clean(before, timeout_s=0)
    lab.stop_daemon(signal.SIGKILL)
    lab.remove("/run/bad-mood")
    lab.start_daemon()
    assert lab.wait_clean(before, timeout_s=0) == ""


def test_reboot(private_scene: Scene) -> None:
    """Links and namespaces are gone; reservations and rules go too, and a restart policy brings its container back."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    network = private_scene.network(private_scene.configure(bridge(subnet, ipv6=True)))
    before = lab.state()
    comes_back = private_scene.run(network, "--restart", "always")
    stays_down = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    lab.stop_dockerd(signal.SIGKILL)
    lab.run("sh", "-c", f"kill -KILL $(busybox pidof sleep); ip link del {subnet.bridge}")
    lab.run("sh", "-c", "umount /run/cni-bridge/netns/* && rm -r /run/cni-bridge /run/docker/netns/* || true")
    lab.write("/run/boot-id", "00000000-0000-0000-0000-000000000000\n")
    lab.run("mount", "--bind", "/run/boot-id", "/proc/sys/kernel/random/boot_id")
    lab.start_daemon()
    state = lab.state()
    assert not [path for path in state.reservations if subnet.gateway.rpartition(".")[0] in path]
    assert not [rule for rule in state.rules if subnet.gateway.rpartition(".")[0] in rule]
    lab.start_dockerd()
    wait_until(lambda: is_running(lab, comes_back.name), "the container is running again", timeout_s=20)
    assert reaches(comes_back, subnet.gateway)
    lab.docker("start", stays_down.name)
    assert reaches(stays_down, subnet.gateway)
    lab.docker("rm", "-f", comes_back.name, stays_down.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.parametrize("wish", ["a port", "an address", "the last address"])
def test_containers_come_back_after_a_crash_of_docker(private_scene: Scene, wish: str) -> None:
    """A restart policy starts them at once, with what the endpoints still have that Docker has forgotten."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    plugins: list[JsonObject] = [*bridge(subnet), {"type": "portmap", "capabilities": {"portMappings": True}}]
    if wish == "the last address":
        start, end = (f"10.80.{subnet.number}.{last}" for last in (9, 9))
        ranges = [[{"subnet": subnet.ipv4, "rangeStart": start, "rangeEnd": end}]]
        plugins[0] = {**plugins[0], "ipam": {"type": "host-local", "ranges": ranges}}
    network = private_scene.network(private_scene.configure(plugins))
    before = lab.state()
    asked = f"name={network},driver-opt=cni.ips=10.80.{subnet.number}.77" if wish == "an address" else network
    ports = ("-p", "8080:80") if wish == "a port" else ()
    container = private_scene.run(asked, "--restart", "always", *ports)
    addresses = container.link().addresses
    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: is_running(lab, container.name), "the container is running again", timeout_s=20)
    if wish != "a port":
        assert container.link().addresses == addresses
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before, timeout_s=20) == ""


def test_docker_is_killed_while_a_port_is_published(private_scene: Scene) -> None:
    """It starts at once after the crash, although its former endpoint, which Docker has forgotten, has its port.

    Engine 28 has made the container before it asks for an endpoint; what waits there ends with dockerd's next life.
    """
    lab = private_scene.lab
    crash = "/run/crash-of-docker"
    private_scene.plugin(
        "portmap",
        'input=$(cat); printf "%s" "$input" | /usr/lib/cni/portmap; ended=$?; case "$CNI_COMMAND$input" in '
        f'ADD*hostPort*) rm {crash} 2>/dev/null && kill -KILL $(busybox pidof dockerd);; esac; exit "$ended"',
    )
    plugins: list[JsonObject] = [
        *bridge(private_scene.subnet()),
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    network = private_scene.network(private_scene.configure(plugins))
    before = lab.state()
    name = private_scene.create(network, "-p", "8081:80")
    lab.write(crash, "")
    with pytest.raises(CommandFailed):
        lab.docker("start", name)
    assert lab.dockerd is not None
    assert lab.dockerd.wait() == -signal.SIGKILL
    lab.start_dockerd()
    lab.docker("start", name)
    lab.docker("rm", "-f", name)
    assert lab.wait_clean(before, timeout_s=20) == ""


def test_a_plugin_that_hangs_keeps_no_other_network_down(private_scene: Scene) -> None:
    """Recovery waits a while for what it owes, then answers Docker and goes on in the background."""
    lab = private_scene.lab
    private_scene.plugin("stuck", f'[ "$CNI_COMMAND" = DEL ] && [ -e /run/stuck ] && sleep 600; {PASS}')
    healthy, subnet = private_scene.bridge_network()
    network = private_scene.network(private_scene.configure([*bridge(private_scene.subnet()), {"type": "stuck"}]))
    before = lab.state()
    container = private_scene.run(network)
    lab.write("/run/stuck", "")
    removal = lab.spawn("docker", "rm", "-f", container.name)
    wait_for(lab, "[ -n \"$(busybox ps | grep 'sleep 600' | grep -v grep)\" ]")
    lab.stop_daemon(signal.SIGKILL)
    lab.start_daemon(timeout_s=20)
    assert reaches(private_scene.run(healthy), subnet.gateway)
    lab.remove("/run/stuck")
    lab.restart_daemon(signal.SIGTERM)
    assert removal.wait(60) == 0
    for name in lab.docker("ps", "-q").split():
        lab.docker("rm", "-f", name)
    lab.run("sh", "-c", "kill $(busybox ps | awk '/sleep 600/ && !/awk/ {print $1}')", check=False)
    assert lab.wait_clean(before) == ""


def test_sigterm_cuts_off_what_takes_too_long(private_scene: Scene) -> None:
    """A call that is not done in `--drain-timeout` is given up, said, and undone at the next start."""
    lab = private_scene.lab
    lab.stop_daemon(signal.SIGTERM)
    lab.start_daemon("--drain-timeout", "1")
    private_scene.plugin("slow", '[ "$CNI_COMMAND" = ADD ] || exit 0; echo $$ >/run/slow-began; exec sleep 600')
    network = private_scene.network(private_scene.configure([*bridge(private_scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    start = lab.spawn("docker", "run", "--rm", "--net", network, "busybox", "true")
    wait_for(lab, "[ -s /run/slow-began ]")
    daemon = lab.daemon
    assert daemon is not None
    assert lab.stop_daemon(signal.SIGTERM, timeout_s=5) == 0
    assert "daemon.cut_off" in daemon.log()
    lab.start_daemon()
    assert start.wait(60) != 0
    lab.remove("/run/slow-began")
    assert lab.wait_clean(before) == ""


PASS = """python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin).get("prevResult")))'"""


def is_running(lab: Lab, container: str) -> bool:
    """Tell what Docker says of a container."""
    return lab.docker("inspect", "-f", "{{.State.Running}}", container) == "true"


def wait_for_file(lab: Lab, path: str) -> None:
    """Wait until a plugin has begun."""
    wait_for(lab, f"[ -s {path} ]")


def wait_for(lab: Lab, condition: str) -> None:
    """Wait until a condition of the shell holds."""
    lab.run("sh", "-c", f"for i in $(seq 200); do {condition} && exit 0; sleep 0.05; done; exit 1")
