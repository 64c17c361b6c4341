# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What dockerd does when the daemon is late, absent or started in another order; the calls are in test_calls.py.

Its limits were measured: it looks for a plugin's socket for some seconds, repeats a call whose connection broke for
fifteen seconds or more, and repeats it without its body.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cni_bridge_spec import get_str
from tests.lab import Engine, Lab, wait_until
from tests.system.calls import BOTH, NETWORK, call, create_endpoint, create_network, wait_torn_down
from tests.system.plugin_lists import PORTMAP, simple
from tests.system.scene import PREV_RESULT, Scene, bridge, reaches

_BEYOND_S = 120
"""Longer than dockerd waits for an absent driver: 15 seconds for each call of a removal."""


@pytest.mark.long
def test_a_restart_policy_and_a_daemon_that_starts_late(private_scene: Scene) -> None:
    """Dockerd waits for the daemon before it restarts containers, so that they have their networks."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network()
    before = lab.state()
    container = private_scene.run(network, "--restart", "always")
    lab.stop_dockerd()
    lab.stop_daemon()
    with ThreadPoolExecutor() as threads:
        booting = threads.submit(lab.start_dockerd, timeout_s=_BEYOND_S)
        wait_until(lambda: lab.run("busybox", "pidof", "dockerd", check=False).returncode == 0, "dockerd runs")
        lab.start_daemon()
        booting.result()
    _wait_restarted(lab, container.name, "0")
    assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.smoke
@pytest.mark.usefixtures("sandbox_before_join")
def test_a_start_that_fails_at_join(scene: Scene, engine: Engine) -> None:
    """From Engine 29.1 on Docker forgets the container's networks. The error says so, and how to restore them."""
    lab = scene.lab
    pass_on = f'exec python3 -c "{PREV_RESULT}"'
    scene.plugin("moody", f'[ "$CNI_COMMAND" = ADD ] || exit 0; [ -e /run/moody ] && exit 1; {pass_on}')
    network = scene.network(scene.configure([*bridge(scene.subnet()), {"type": "moody"}]), "-o", "cni.attach=sandbox")
    name = scene.create(network)
    lab.run("touch", "/run/moody")
    error = scene.refusal("start", name)
    lab.run("rm", "/run/moody")
    assert "moody" in error
    container = lab.container(name)
    assert ("moby #51758" in error) is (engine.version >= (29, 1))
    if engine.version >= (29, 1):
        assert lab.docker("inspect", "--format", "{{len .NetworkSettings.Networks}}", name) == "0"
        lab.docker("network", "connect", network, name)
    lab.docker("start", name)
    assert container.link().addresses


@pytest.mark.smoke
def test_a_restarted_dockerd_with_live_restore(private_scene: Scene, engine: Engine) -> None:
    """From Engine 29 on it does not revoke the ports that it published before; they are removed all the same."""
    lab = private_scene.lab
    lab.stop_dockerd()
    lab.start_dockerd("--live-restore")
    subnet = private_scene.subnet()
    plugins = [simple(subnet, ipMasq=True), PORTMAP, {"type": "firewall"}]
    network = private_scene.network(private_scene.configure(plugins), name="zzz-kept")
    other = private_scene.network(private_scene.configure(bridge(private_scene.subnet())), name="aaa-further")
    before = lab.state()
    container = private_scene.run(network, "-p", "8080:80")
    running = lab.state()
    lab.restart_dockerd()
    assert lab.wait_clean(running) == ""
    connected = lab.run("docker", "network", "connect", other, container.name, check=False)
    if engine.version >= (29,):
        assert "remote network driver: endpoint" in connected.stderr
        assert lab.wait_clean(running) == ""
    else:
        assert connected.returncode == 0
        lab.docker("network", "disconnect", other, container.name)
    assert reaches(container, subnet.gateway)
    lab.docker("stop", "-t", "0", container.name)
    assert lab.wait_clean(replace(before, containers=(*before.containers, container.name))) == ""
    lab.docker("start", container.name)
    lab.docker("network", "connect", other, container.name)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.parametrize(
    ("joined", "where"),
    [(False, "host"), (False, "gone"), (True, "host"), (True, "sandbox"), (True, "gone")],
)
@pytest.mark.representatives("False-gone", "True-sandbox")
def test_delete_wherever_the_link_is(scene: Scene, joined: bool, where: str) -> None:
    """DeleteEndpoint without Leave, with or without Join, removes everything, wherever the link is."""
    lab = scene.lab
    create_network(lab, scene.configure(bridge(scene.subnet(), ipv6=True)))
    before = lab.state()
    create_endpoint(lab)
    lab.run("ip", "netns", "add", "habit")
    if joined:
        call(lab, "Join", {**BOTH, "SandboxKey": "/run/netns/habit", "Options": {}})
    link = f"cnib{get_str(BOTH, 'EndpointID')[:11]}"
    if where == "sandbox":
        lab.run("ip", "link", "set", link, "netns", "habit", "name", "eth0")
    elif where == "gone":
        lab.run("ip", "link", "del", link)
    assert call(lab, "DeleteEndpoint", BOTH) == {}
    lab.run("ip", "netns", "del", "habit")  # as libnetwork does, without waiting
    wait_torn_down(lab)
    assert lab.wait_clean(before) == ""
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def _wait_restarted(lab: Lab, name: str, pid: str) -> None:
    """Wait until a container runs as another process than `pid`; Docker shows process 0 during a restart."""
    shown = f"docker inspect -f '{{{{.State.Running}}}} {{{{.State.Pid}}}}' {name}"
    condition = f'set -- $({shown}); [ "$1" = true ] && [ "$2" != {pid} ] && [ "$2" != 0 ]'
    lab.run("sh", "-c", f"for i in $(seq 200); do {condition} && exit 0; sleep 0.1; done; exit 1")
