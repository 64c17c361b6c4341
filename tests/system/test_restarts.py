# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon ends and starts again while containers run: they keep their networks, and no endpoint is forgotten."""

import signal

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Lab
from tests.lab.waiting import wait_until
from tests.system.scene import Scene, bridge, reaches


@pytest.mark.smoke
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
@pytest.mark.representatives("SIGKILL")
def test_restart_while_a_container_runs(private_scene: Scene, how: signal.Signals) -> None:
    """The container keeps its network without the daemon, and can be stopped, started and removed afterwards."""
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
    wait_until(lambda: lab.wait_clean(before, timeout_s=0) == stopped, "only the stopped container is left")
    lab.docker("start", container.name)
    assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


def test_a_container_removed_while_the_daemon_is_down(private_scene: Scene) -> None:
    """Docker waits until the daemon runs again, and the removal is complete."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    before = lab.state()
    container = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    removal = lab.spawn("docker", "rm", "-f", container.name)
    lab.start_daemon()
    assert removal.wait(60) == 0
    assert lab.wait_clean(before) == ""


def test_reboot(private_scene: Scene) -> None:
    """After a reboot reservations and rules are removed like links and namespaces, and restart policies work."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    network = private_scene.network(private_scene.configure(bridge(subnet, ipv6=True)))
    before = lab.state()
    restarted = private_scene.run(network, "--restart", "always")
    stopped = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    lab.stop_dockerd(signal.SIGKILL)
    lab.run("sh", "-c", f"kill -KILL $(busybox pidof sleep); ip link del {subnet.bridge}")
    lab.run(
        "sh",
        "-c",
        "umount /run/cni-bridge/*/* /run/docker/netns/*; rm -r /run/cni-bridge /run/docker/netns/*",
        check=False,
    )
    lab.write("/run/boot-id", "00000000-0000-0000-0000-000000000000\n")
    lab.run("mount", "--bind", "/run/boot-id", "/proc/sys/kernel/random/boot_id")
    lab.start_daemon()
    state = lab.state()
    assert not [path for path in state.reservations if subnet.gateway.rpartition(".")[0] in path]
    assert not [rule for rule in state.rules if subnet.gateway.rpartition(".")[0] in rule]
    lab.start_dockerd()
    wait_until(lambda: is_running(lab, restarted.name), "the container is running again", timeout_s=20)
    assert reaches(restarted, subnet.gateway)
    lab.docker("start", stopped.name)
    assert reaches(stopped, subnet.gateway)
    lab.docker("rm", "-f", restarted.name, stopped.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
@pytest.mark.parametrize("requested", ["a port", "an address", "the last address"])
def test_restart_policies_after_a_crash_of_docker(private_scene: Scene, requested: str) -> None:
    """Containers restart at once, with the port or address that an endpoint forgotten by Docker still holds."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    plugins: list[JsonObject] = [*bridge(subnet), {"type": "portmap", "capabilities": {"portMappings": True}}]
    if requested == "the last address":
        start, end = (f"10.80.{subnet.number}.{last}" for last in (9, 9))
        ranges = [[{"subnet": subnet.ipv4, "rangeStart": start, "rangeEnd": end}]]
        plugins[0] = {**plugins[0], "ipam": {"type": "host-local", "ranges": ranges}}
    network = private_scene.network(private_scene.configure(plugins))
    before = lab.state()
    on = f"name={network},driver-opt=cni.ips=10.80.{subnet.number}.77" if requested == "an address" else network
    ports = ("-p", "8080:80") if requested == "a port" else ()
    container = private_scene.run(on, "--restart", "always", *ports)
    addresses = container.link().addresses
    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: is_running(lab, container.name), "the container is running again", timeout_s=20)
    if requested != "a port":
        assert container.link().addresses == addresses
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before, timeout_s=20) == ""


@pytest.mark.long
def test_sigterm_cancels_calls_after_the_drain_timeout(private_scene: Scene) -> None:
    """A call that does not complete within `--drain-timeout` is cancelled, logged, and undone at the next start."""
    lab = private_scene.lab
    lab.stop_daemon(signal.SIGTERM)
    lab.start_daemon("--drain-timeout", "1")
    private_scene.plugin("slow", '[ "$CNI_COMMAND" = ADD ] || exit 0; echo $$ >/run/slow-began; exec sleep 600')
    network = private_scene.network(private_scene.configure([*bridge(private_scene.subnet()), {"type": "slow"}]))
    before = lab.state()
    start = lab.spawn("docker", "run", "--rm", "--net", network, "busybox", "true")
    wait_until(lab.path("/run/slow-began").exists, "the plugin")
    daemon = lab.daemon
    assert daemon is not None
    assert lab.stop_daemon(signal.SIGTERM, timeout_s=5) == 0
    assert "daemon.cut_off" in daemon.log()
    lab.start_daemon()
    assert start.wait(60) != 0
    lab.remove("/run/slow-began")
    assert lab.wait_clean(before) == ""


def is_running(lab: Lab, container: str) -> bool:
    """Return whether Docker shows a container as running."""
    return lab.docker("inspect", "-f", "{{.State.Running}}", container) == "true"
