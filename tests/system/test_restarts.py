# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon ends and starts again while containers run; nobody notices, and nothing is forgotten."""

import signal

import pytest

from tests.lab import Lab
from tests.system.scene import Scene, bridge, reaches

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
    assert lab.wait_clean(before).startswith(f"containers: {container.name}")
    lab.docker("start", container.name)
    assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


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
    """What a killed daemon had begun is undone by its next life before it answers Docker."""
    lab = private_scene.lab
    private_scene.plugin("slow", '[ "$CNI_COMMAND" = ADD ] || exit 0; echo $$ >/run/slow-began; exec sleep 600')
    network = private_scene.network(private_scene.configure([*bridge(private_scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    start = lab.spawn("docker", "run", "--rm", "--net", network, "busybox", "true")
    wait_for_file(lab, "/run/slow-began")
    lab.stop_daemon(signal.SIGKILL)
    lab.run("sh", "-c", "kill -KILL $(cat /run/slow-began)")
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


PASS = """python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))'"""


def wait_for_file(lab: Lab, path: str) -> None:
    """Wait until a plugin has begun."""
    lab.run("sh", "-c", f"for i in $(seq 200); do [ -e {path} ] && exit 0; sleep 0.05; done; exit 1")
