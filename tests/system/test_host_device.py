# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`host-device` returns the device as it was, and a start that it refuses leaves nothing."""

import json

import pytest

from cni_bridge_spec import JsonObject, get_objects
from tests.lab import wait_until
from tests.system.calls import ask_status, wait_torn_down
from tests.system.scene import Scene

DEVICE = "device1"


@pytest.fixture(name="network", params=["move", "hybrid", "direct"])
def make_network(scene: Scene, request: pytest.FixtureRequest) -> str:
    """A network in each attach mode whose only device is one end of a veth pair."""
    if request.param != "move":
        request.getfixturevalue("sandbox_before_join")
    scene.lab.run("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", f"{DEVICE}-end")
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": scene.subnet().ipv4}]]}
    device: JsonObject = {"type": "host-device", "device": DEVICE, "ipam": ipam}
    return scene.network(scene.configure([device]), mode=request.param)


@pytest.mark.representatives("hybrid")
def test_starts_without_the_device(scene: Scene, network: str) -> None:
    """A second container, and one when the device is missing, fail; the first one keeps it, and no DEL is pending."""
    lab = scene.lab
    container = scene.run(network)
    link = container.link()
    assert "failed to find host device" in scene.run_refusal(network)
    assert_nothing_is_pending(scene)
    assert container.link() == link
    lab.docker("rm", "-f", container.name)
    lab.run("ip", "link", "del", DEVICE)
    assert "failed to find host device" in scene.run_refusal(network)
    assert_nothing_is_pending(scene)


def assert_nothing_is_pending(scene: Scene) -> None:
    """No endpoint is being deleted, and no link is left in the host namespace."""
    wait_torn_down(scene.lab)
    assert get_objects(ask_status(scene.lab), "pendingTeardowns") == ()
    wait_until(
        lambda: "cnib" not in scene.lab.run("ip", "link", "show").stdout, "the end of the link in the host namespace"
    )


@pytest.mark.representatives("hybrid")
def test_a_device_that_goes_while_it_is_in_use(scene: Scene, network: str) -> None:
    """DEL releases its address, and none is pending."""
    container = scene.run(network)
    container.ip("link", "del", container.link().name)
    scene.lab.docker("rm", "-f", container.name)
    assert_nothing_is_pending(scene)


@pytest.mark.representatives("direct")
def test_names_of_a_device(scene: Scene, network: str) -> None:
    """After each container it has none but its own: a link can have some hundreds, and the next start would fail."""
    for _ in range(2):
        scene.lab.docker("rm", "-f", scene.run(network).name)
        (device,) = json.loads(scene.lab.run("ip", "-json", "link", "show", DEVICE).stdout)
        assert "altnames" not in device
    scene.lab.run("ip", "link", "del", DEVICE)
