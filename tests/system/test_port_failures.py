# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that fail, are killed, or take long while they publish ports."""

import json
import signal
import sys
from collections.abc import Sequence

import pytest

from tests.lab import wait_until
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.ports import port_network, published
from tests.system.scene import Scene


@pytest.mark.parametrize(
    ("end", "error"),
    [("""echo '{"code": 100, "msg": "no luck"}'; exit 1""", "no luck"), ("kill -KILL $$", "killed by SIGKILL")],
    ids=["it says why", "it is killed whenever it publishes"],
)
def test_a_plugin_that_fails_to_publish(scene: Scene, end: str, error: str) -> None:
    """Docker receives the first failure, nothing is left behind, and the port is free again."""
    scene.plugin(
        "portmap",
        f'input=$(cat); case "$CNI_COMMAND$input" in ADD*hostPort*) {end};; esac; '
        'printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene)
    before = scene.lab.state()
    assert error in scene.run_refusal(network, "-p", "8098:98")
    assert scene.lab.wait_clean(before) == ""
    scene.lab.remove("/opt/cni/bin/portmap")
    scene.run(network, "-p", "8098:98")


@pytest.mark.long
def test_the_daemon_is_killed_while_the_gateway_changes(private_scene: Scene, beside_ours: Sequence[str]) -> None:
    """Its next run publishes the ports: Docker only logs the error, and does not request them again."""
    scene, lab = private_scene, private_scene.lab
    scene.plugin(
        "portmap",
        "input=$(cat); case $CNI_COMMAND in ADD) while [ -e /run/gate ]; do touch /run/portmap-waits; sleep 0.05; "
        'done;; esac; printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene, name="zzz-restarted")
    container = scene.run(network, "-p", "8101:80")
    builtin = scene.builtin_network()
    lab.docker("network", "connect", *beside_ours, builtin, container.name)
    lab.write("/run/gate", "")
    lab.spawn("docker", "network", "disconnect", builtin, container.name)
    wait_until(lambda: lab.path("/run/portmap-waits").exists(), "portmap to run")
    lab.stop_daemon(signal.SIGKILL)
    lab.remove("/run/gate")
    lab.start_daemon()
    with outside(lab) as there, serving(lab, container, 80):
        wait_until(lambda: ask(lab, there, HOST_IP, 8101) == container.name, "the port to be published")
    lab.stop_daemon()
    exported = json.loads(lab.run(sys.executable, "-m", "cnm_bridge", "state", "export", "-").stdout)
    assert [one["requestedPorts"] for one in exported["endpoints"]] == [[]]
    lab.start_daemon()


@pytest.mark.long
def test_many_ports_have_a_longer_time_limit(private_scene: Scene) -> None:
    """The plugin that publishes ports has a longer limit for ADD and DEL: `portmap` needs time for each port."""
    scene = private_scene
    scene.lab.stop_daemon()
    scene.lab.start_daemon("--plugin-timeout", "2")
    scene.plugin(
        "portmap",
        'input=$(cat); case "$input" in *hostPort*) sleep 3;; esac; printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene)
    before = scene.lab.state()
    container = scene.run(network, "-p", "8520-8535:20-35")
    assert len(published(scene)) == 16
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before, 30) == ""
    assert scene.lab.daemon is not None
    assert "within" not in scene.lab.daemon.log()
