# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that run in the sandbox itself (Engine 28 and newer), and what happens where that is not possible."""

import json
import signal

import pytest

from cni_bridge_spec import get_object, get_objects, get_str
from tests.lab import Container, wait_until
from tests.system.calls import ask_status, wait_torn_down
from tests.system.equivalence import assert_equivalent, run_directly
from tests.system.netlink_trace import tracing
from tests.system.plugin_lists import LISTS
from tests.system.scene import LISTS as SINGLE
from tests.system.scene import PASS, Scene, bridge, reaches, wait_logged

SANDBOX = ("-o", "cni.attach=sandbox")
STUCK = "/run/stuck"


def modes(scene: Scene) -> list[str]:
    """Return the mode of each endpoint, as it is stored."""
    endpoints = get_objects(json.loads(scene.lab.run("cni-bridge", "state", "export").stdout), "endpoints")
    return sorted(get_str(get_object(endpoint, "attachment"), "mode") for endpoint in endpoints)


def inspect(scene: Scene, container: Container) -> str:
    """Return what the operator sees of a container."""
    return scene.lab.run("cni-bridge", "inspect", container.name).stdout


def names(container: Container) -> set[str]:
    """Return the names of a container's links."""
    return {link.name for link in container.links()}


@pytest.mark.smoke
@pytest.mark.usefixtures("sandbox_before_join")
def test_a_container_on_a_single_network(scene: Scene) -> None:
    """Its link is made in the sandbox: `eth0`, with the addresses and the MAC that Docker shows; peers reach it."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet, ipv6=True)), *SANDBOX)
    container, peer = scene.run(network), scene.run(network)
    assert modes(scene) == ["hybrid", "hybrid"]
    assert "sandbox, because cni.attach=sandbox\n" in inspect(scene, container)
    shown, link = container.endpoint(network), container.link()
    assert (shown.addresses, shown.mac) == (link.addresses, link.mac)
    for name in (subnet.gateway, subnet.gateway_ipv6, container.name, *(str(one.ip) for one in link.addresses)):
        assert reaches(peer, name)


@pytest.mark.smoke
@pytest.mark.usefixtures("sandbox_before_join")
def test_a_container_on_several_networks(scene: Scene) -> None:
    """All links are moved, because Docker numbers only links that it knows."""
    first = scene.network(scene.configure(bridge(scene.subnet())), *SANDBOX)
    second = scene.network(scene.configure(bridge(scene.subnet())), *SANDBOX)
    container = scene.run(first, "--network", second, "--network", scene.builtin_network())
    assert modes(scene) == ["move", "move"]
    assert inspect(scene, container).count("move, because the container has further networks\n") == 2
    assert names(container) == {"eth0", "eth1", "eth2"}


@pytest.mark.moves("a container in the host's PID namespace has no first process")
@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("kind", ["bridge second addresses", "bridge sbr", "ptp", "ptp dual stack", "ptp IPv6-only"])
@pytest.mark.representatives("bridge sbr")
def test_a_link_that_is_moved_although_docker_knows_its_addresses(scene: Scene, kind: str) -> None:
    """At Join the networks of a container without a PID namespace are not known; it has all that the plugins made."""
    chosen = LISTS[kind]
    name = scene.configure(chosen.plugins(scene.subnet()), cni_version=chosen.cni_version)
    wanted = run_directly(scene.lab, name, chosen.capability_args)
    network = scene.network(name, *SANDBOX)
    container = scene.run(network, "--pid=host")
    assert modes(scene) == ["move"]
    assert_equivalent(scene.lab, container, wanted)
    assert set(container.endpoint(network).addresses) <= set(container.link().addresses)


@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("mode", ["hybrid", "move"])
def test_a_network_that_is_connected_later(scene: Scene, mode: str) -> None:
    """A second link is moved, under a name that is free; the first one leaves the container at once."""
    one, two = scene.subnet(), scene.subnet()
    first = scene.network(scene.configure(bridge(one)), *SANDBOX)
    second = scene.network(scene.configure(bridge(two)), mode=mode)
    container = scene.run(first)
    scene.lab.docker("network", "connect", second, container.name)
    assert names(container) == {"eth0", "cni0"}
    assert reaches(container, two.gateway)
    scene.lab.docker("network", "disconnect", first, container.name)
    assert names(container) == {"cni0"}
    scene.lab.docker("network", "connect", first, container.name)
    assert reaches(container, one.gateway)


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_builtin_network_that_is_connected_later(scene: Scene) -> None:
    """Docker needs a name for its link; without it Docker fails, and the container keeps its network."""
    subnet = scene.subnet()
    network, builtin = scene.network(scene.configure(bridge(subnet)), *SANDBOX), scene.builtin_network()
    container = scene.run(network)
    assert "file exists" in scene.refusal("network", "connect", builtin, container.name)
    assert "eth0" in names(container)  # beside it Docker leaves its own link, unnamed and without an address
    assert reaches(container, subnet.gateway)
    named = ("--driver-opt", "com.docker.network.endpoint.ifname=eth1")
    scene.lab.docker("network", "connect", *named, builtin, container.name)
    assert {"eth0", "eth1"} <= names(container)


@pytest.mark.smoke
@pytest.mark.usefixtures("sandbox_before_join")
def test_without_an_address_known_to_docker(scene: Scene) -> None:
    """All plugins run at Join; Docker shows no address, and the network works."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet, ipv6=True)), mode="direct")
    container = scene.run(network)
    assert modes(scene) == ["direct"]
    assert container.endpoint(network).addresses == ()
    (default,) = container.ip("-6", "route", "show", "default")
    assert default["gateway"] == subnet.gateway_ipv6
    assert reaches(container, subnet.gateway)
    assert reaches(scene.run(network), str(container.link().addresses[0].ip))


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_direct_network_beside_a_link_of_docker(scene: Scene) -> None:
    """Both would be `eth0`; the error names the option that gives it another name, and with that it works."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet)), mode="direct")
    container = scene.run(scene.builtin_network())
    option = "com.docker.network.endpoint.ifname="
    assert f"driver-opt={option}NAME" in scene.refusal("network", "connect", network, container.name)
    assert names(container) == {"eth0"}
    scene.lab.docker("network", "connect", "--driver-opt", f"{option}lan1", network, container.name)
    assert names(container) == {"eth0", "lan1"}
    assert reaches(container, subnet.gateway)


@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("mode", ["hybrid", "direct", "move"])
@pytest.mark.representatives("move")
def test_links_that_are_moved_between_namespaces(scene: Scene, mode: str) -> None:
    """In the life of a container, neither this driver nor Docker moves a link, except in mode *move*, where both do."""
    lab = scene.lab
    network = scene.network(scene.configure(bridge(scene.subnet(), ipv6=True)), mode=mode)
    assert lab.daemon is not None
    assert lab.dockerd is not None
    with tracing(lab, lab.daemon) as ours, tracing(lab, lab.dockerd) as dockers:
        lab.docker("run", "--rm", "--network", network, "busybox", "true")
        wait_torn_down(lab)
    assert (ours.count_moves() > 0, dockers.count_moves() > 0) == ((mode == "move"), (mode == "move"))


@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
@pytest.mark.parametrize("kind", ["bridge", "ptp"])
@pytest.mark.representatives("bridge-direct")
def test_a_plugin_that_fails_in_a_running_container(scene: Scene, kind: str, mode: str) -> None:
    """Nothing is left in the container, and a network that is connected next keeps its link."""
    scene.plugin("broken", '[ $CNI_COMMAND = DEL ] || { echo \'{"code": 100, "msg": "out of order"}\'; exit 1; }')
    plugins = [*SINGLE[kind](scene.subnet()), {"type": "broken"}]
    network = scene.network(scene.configure(plugins), mode=mode)
    builtin = scene.builtin_network()
    container = scene.run(builtin)
    scene.lab.docker("network", "disconnect", builtin, container.name)
    assert "out of order" in scene.refusal("network", "connect", network, container.name)
    assert names(container) == set()
    scene.lab.docker("network", "connect", builtin, container.name)
    wait_torn_down(scene.lab)
    assert names(container) == {"eth0"}


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_failing_del_in_a_running_container(scene: Scene) -> None:
    """The link leaves the container at once, whenever the plugins complete their DEL."""
    scene.plugin("stuck", f"[ $CNI_COMMAND = DEL ] && [ -e {STUCK} ] && exit 1; {PASS}")
    network = scene.network(scene.configure([*bridge(scene.subnet()), {"type": "stuck"}]), *SANDBOX)
    builtin = scene.builtin_network()
    container = scene.run(network)
    scene.lab.write(STUCK, "")
    scene.lab.docker("network", "disconnect", network, container.name)
    assert names(container) == set()
    scene.lab.docker("network", "connect", builtin, container.name)
    scene.lab.remove(STUCK)
    wait_until(lambda: not get_objects(ask_status(scene.lab), "pendingTeardowns"), "the end of the teardown")
    assert names(container) == {"eth0"}


@pytest.mark.long
@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
def test_a_lost_state_with_another_name_of_the_link(private_scene: Scene, mode: str) -> None:
    """Name and addresses are found in the sandbox."""
    scene, lab = private_scene, private_scene.lab
    network = scene.network(scene.configure(bridge(scene.subnet())), "-o", "cni.ifname-prefix=lan", mode=mode)
    before = lab.state()
    container = scene.run(network)
    assert names(container) == {"lan0"}
    lab.stop_daemon(signal.SIGKILL)
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")
    lab.start_daemon("--reconcile-interval", "1")
    other = scene.run(network)  # a call about the network, without which the engine is not known to be ours
    wait_logged(lab, "endpoint.rebuilt")
    lab.docker("rm", "-f", container.name, other.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
@pytest.mark.usefixtures("sandbox_before_join")
def test_dockerd_is_restarted_with_live_restore(private_scene: Scene) -> None:
    """Dockerd survives the removal of a container with two networks of ours, of which it does not know one link."""
    scene, lab = private_scene, private_scene.lab
    one, two = scene.subnet(), scene.subnet()
    first = scene.network(scene.configure(bridge(one)), *SANDBOX)
    second = scene.network(scene.configure(bridge(two)), *SANDBOX)
    before = lab.state()
    lab.stop_dockerd()
    lab.start_dockerd("--live-restore")
    container = scene.run(first)
    lab.docker("network", "connect", second, container.name)
    assert modes(scene) == ["hybrid", "move"]
    lab.stop_dockerd()
    dockerd = lab.start_dockerd("--live-restore")
    for subnet in (one, two):
        assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.docker("version", "--format", "{{.Server.Version}}")
    assert dockerd.returncode is None
    assert lab.wait_clean(before) == ""
