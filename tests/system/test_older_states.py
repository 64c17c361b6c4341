# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state goes back to an older one, as after a downgrade: what runs by then keeps everything."""

import sys

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Lab
from tests.lab.leftovers import leftovers
from tests.system.calls import wait_torn_down
from tests.system.ports import port_network
from tests.system.scene import Scene, bridge, reaches, wait_logged

STATE = "/var/lib/cni-bridge"
COPY = "/run/older-state"
CNI_BRIDGE = (sys.executable, "-m", "cnm_bridge")


def save(lab: Lab, how: str) -> None:
    """Keep a copy of the state."""
    if how == "export":
        lab.run(*CNI_BRIDGE, "state", "export", COPY)
    else:
        lab.stop_daemon()
        lab.run("cp", "-a", STATE, COPY)
        lab.start_daemon()


def go_back(lab: Lab, how: str) -> None:
    """Put the copy in the place of the state; the daemon does not run."""
    if how == "export":
        lab.run(*CNI_BRIDGE, "state", "import", "--replace", COPY)
    else:
        lab.run("sh", "-c", f"rm -r {STATE}/* && cp -a {COPY}/. {STATE}")
    lab.remove(COPY)


@pytest.mark.parametrize("how", ["export", "directory"])
@pytest.mark.representatives("export")
def test_a_container_that_was_restarted_since(private_scene: Scene, how: str) -> None:
    """It keeps its firewall rules, which are found by its address, although the older record has that address, too."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    main, *others = bridge(subnet)
    address = subnet.ipv4.replace("0/24", "9")
    only: JsonObject = {"subnet": subnet.ipv4, "rangeStart": address, "rangeEnd": address}
    ipam: JsonObject = {"type": "host-local", "ranges": [[only]], "routes": [{"dst": "0.0.0.0/0"}]}
    network = private_scene.network(private_scene.configure([{**main, "ipam": ipam}, *others]))
    neighbours, behind = private_scene.bridge_network()
    before = lab.state()
    other, container = private_scene.run(neighbours), private_scene.run(network)
    neighbour = behind.ipv4.replace("0/24", "2")
    assert reaches(container, neighbour)
    save(lab, how)
    sandbox = lab.docker("inspect", "-f", "{{.NetworkSettings.SandboxKey}}", container.name)
    lab.docker("restart", "-t", "0", container.name)
    wait_torn_down(lab)
    lab.remove(sandbox)  # dockerd does that within a minute
    made = lab.state()
    lab.stop_daemon()
    go_back(lab, how)
    lab.start_daemon("--reconcile-interval", "1")
    assert container.name in wait_logged(lab, "endpoint.rebuilt")
    wait_logged(lab, "endpoint.torn_down")
    assert leftovers(lab.state(), made) == ""
    assert reaches(container, neighbour)
    lab.docker("rm", "-f", container.name, other.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
def test_ports_that_have_moved_since(private_scene: Scene) -> None:
    """The older record of the endpoint that publishes them has none; still, nothing of them is left at the end."""
    lab = private_scene.lab
    first, second = (port_network(private_scene, name=name)[0] for name in ("a-first", "b-second"))
    before = lab.state()
    container = private_scene.run(first, "-p", "8080:80")
    lab.docker("network", "connect", second, container.name)
    save(lab, "directory")
    lab.docker("network", "disconnect", first, container.name)
    wait_logged(lab, "endpoint.published")
    wait_torn_down(lab)
    lab.stop_daemon()
    go_back(lab, "directory")
    lab.start_daemon("--reconcile-interval", "1")
    wait_logged(lab, "endpoint.torn_down")
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
@pytest.mark.usefixtures("sandbox_before_join")
def test_a_container_whose_partner_stays_in_its_sandbox(private_scene: Scene) -> None:
    """It starts again: Docker lets its endpoint leave, which is rebuilt for that, and deletes it."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    main, *others = bridge(subnet)
    address = subnet.ipv4.replace("0/24", "9")
    only: JsonObject = {"subnet": subnet.ipv4, "rangeStart": address, "rangeEnd": address}
    ipam: JsonObject = {"type": "host-local", "ranges": [[only]]}
    network = private_scene.network(
        private_scene.configure([{**main, "ipam": ipam}, *others]), "-o", "cni.attach=sandbox"
    )
    before = lab.state()
    save(lab, "directory")
    container = private_scene.run(network)
    partner = private_scene.run(f"container:{container.name}")
    lab.stop_daemon()
    go_back(lab, "directory")
    lab.start_daemon()
    lab.docker("kill", container.name)
    lab.docker("start", container.name)
    assert container.name in wait_logged(lab, "endpoint.rebuilt")
    lab.docker("rm", "-f", container.name, partner.name)
    assert lab.wait_clean(before) == ""
