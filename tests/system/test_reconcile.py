# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reconcile tears down endpoints that Docker has lost, rebuilds those that we have lost, and keeps what is in use."""

import signal

import pytest

from cni_bridge_spec import JsonObject, as_object, get_object
from tests.lab import PLUGIN_SOCKET, Lab, wait_until
from tests.lab.leftovers import leftovers
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, bridge, reaches, wait_logged

OFTEN = ("--reconcile-interval", "1")
ENDPOINT = "e" * 64


def restart_daemon(lab: Lab, *options: str) -> None:
    """Restart the daemon with options."""
    lab.stop_daemon()
    lab.start_daemon(*options)


def forget_state(lab: Lab) -> None:
    """Delete everything that the daemon has stored."""
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")


def create_unknown_to_docker(lab: Lab, network: str) -> None:
    """Make an endpoint that Docker does not have."""
    network_id = lab.docker("network", "inspect", "-f", "{{.Id}}", network)
    body: JsonObject = {"NetworkID": network_id, "EndpointID": ENDPOINT, "Interface": {}, "Options": {}}
    _, answer = lab.request(PLUGIN_SOCKET, "POST", "/NetworkDriver.CreateEndpoint", body)
    assert get_object(as_object(answer, "answer"), "Interface")


def test_endpoints_lost_in_a_crash_of_docker(private_scene: Scene) -> None:
    """Docker ends the containers of its previous run without a call: their addresses, rules and links are removed."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    first, second = private_scene.run(network), private_scene.run(network)
    lab.restart_dockerd(signal.SIGKILL)
    stopped = [f"containers: {name}" for name in sorted((first.name, second.name))]
    wait_until(lambda: lab.wait_clean(before, timeout_s=0).splitlines() == stopped, "the containers alone are left")
    lab.docker("start", first.name)
    assert reaches(first, subnet.gateway)
    lab.docker("rm", "-f", first.name, second.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
def test_containers_that_outlive_docker(private_scene: Scene) -> None:
    """With live-restore the containers keep running and keep their network; later they are removed completely."""
    lab = private_scene.lab
    lab.stop_dockerd()
    lab.start_dockerd("--live-restore")
    restart_daemon(lab, *OFTEN)
    network, subnet = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    made = lab.state()
    for how in (signal.SIGKILL, signal.SIGTERM):
        lab.restart_dockerd(how)
        wait_reconciled(lab)
        assert leftovers(lab.state(), made) == ""  # the container still has everything
        assert reaches(container, subnet.gateway)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before) == ""


def test_an_endpoint_that_docker_does_not_have(private_scene: Scene) -> None:
    """It is torn down: the answer to its CreateEndpoint was lost, and Docker will never delete it."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    restart_daemon(lab, *OFTEN)
    before = lab.state()
    create_unknown_to_docker(lab, network)
    assert "reservation" in lab.wait_clean(before, timeout_s=0)
    assert lab.wait_clean(before, timeout_s=20) == ""


def test_a_lost_state(private_scene: Scene) -> None:
    """Networks and running containers are rebuilt, and can be removed completely."""
    lab = private_scene.lab
    network, subnet = private_scene.bridge_network(ipv6=True)
    by_name = private_scene.network(None, name=private_scene.configure(bridge(private_scene.subnet())))
    before = lab.state()
    first, other = private_scene.run(network), private_scene.run(by_name)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon(*OFTEN)
    second = private_scene.run(network)
    assert reaches(second, subnet.gateway)
    wait_logged(lab, f'"container": "{other.name}"')
    lab.docker("rm", "-f", first.name, second.name, other.name)
    assert lab.wait_clean(before) == ""


@pytest.mark.long
def test_a_container_removed_first_after_the_state_was_lost(private_scene: Scene) -> None:
    """The container is removed completely, although its Leave is the first call to the new daemon."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network(ipv6=True)
    before = lab.state()
    container = private_scene.run(network)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon(*OFTEN)
    lab.docker("rm", "-f", container.name)
    assert lab.wait_clean(before, timeout_s=30) == ""


@pytest.mark.long
def test_leftovers_of_an_endpoint_without_a_record(private_scene: Scene) -> None:
    """They are found by its staging namespace and its link; its addresses and rules are removed with them."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network(ipv6=True)
    neighbour = private_scene.run(network)
    before = lab.state()
    create_unknown_to_docker(lab, network)
    lab.stop_daemon(signal.SIGKILL)
    forget_state(lab)
    lab.start_daemon(*OFTEN)
    second = private_scene.run(network)  # the first call reveals which engine is Docker's
    lab.docker("rm", "-f", second.name)
    assert lab.wait_clean(before, timeout_s=30) == ""
    wait_logged(lab, f'"container": "{neighbour.name}"')
