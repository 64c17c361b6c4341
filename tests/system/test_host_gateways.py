# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The host answers for the gateways that plugins make, from a container's first packet on, as with Docker's bridge."""

import json
from collections.abc import Callable, Sequence

import pytest

from cni_bridge_spec import JsonObject
from tests.system.scene import Scene, bridge, ptp, reaches

MODES = [
    "move",
    *(
        pytest.param(mode, marks=pytest.mark.engine_since("28", "has a sandbox at Join"))
        for mode in ("hybrid", "direct")
    ),
]


def flags(scene: Scene, address: str) -> Sequence[JsonObject]:
    """Return what the host's links say about an address."""
    links = json.loads(scene.lab.run("ip", "-6", "-json", "address", "show").stdout)
    return [found for link in links for found in link.get("addr_info", ()) if found["local"] == address]


@pytest.mark.smoke
@pytest.mark.parametrize("attach", MODES)
@pytest.mark.parametrize("kind", [bridge, ptp])
@pytest.mark.representatives("bridge-move")
def test_a_gateway_answers_at_once(scene: Scene, attach: str, kind: Callable[..., Sequence[JsonObject]]) -> None:
    """The kernel does not look for duplicates first, which takes one to two seconds, on a link that was just made."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(kind(subnet, ipv6=True)), mode=attach)
    container = scene.run(network)
    (gateway,) = flags(scene, subnet.gateway_ipv6)
    assert gateway["nodad"]
    assert "tentative" not in gateway
    assert reaches(container, subnet.gateway_ipv6, seconds=1)


@pytest.mark.parametrize("attach", MODES)
@pytest.mark.representatives("direct")
def test_a_bridge_of_the_operator_stays_as_it_is(scene: Scene, attach: str) -> None:
    """Others may have the address on the LAN behind it, so the kernel looks for duplicates."""
    subnet = scene.subnet()
    scene.lab.run("ip", "link", "add", subnet.bridge, "type", "bridge")
    network = scene.network(scene.configure(bridge(subnet, ipv6=True)), mode=attach)
    container = scene.run(network)
    (gateway,) = flags(scene, subnet.gateway_ipv6)
    assert "nodad" not in gateway
    assert reaches(container, subnet.gateway_ipv6)
