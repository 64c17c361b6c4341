# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An endpoint's options complete those of its network, and override them."""

from cni_bridge_spec import JsonObject
from tests.system.scene import Scene, bridge

BANDWIDTH: JsonObject = {"type": "bandwidth", "capabilities": {"bandwidth": True}}


def test_an_endpoints_burst_completes_its_networks_rate(scene: Scene) -> None:
    """An option that needs another one is valid if the network has that other one."""
    listed = scene.configure([*bridge(scene.subnet()), BANDWIDTH])
    network = scene.network(listed, "-o", "cni.bandwidth.ingress-rate=8M")
    before = scene.lab.run("tc", "qdisc").stdout
    scene.run(f"name={network},driver-opt=cni.bandwidth.ingress-burst=4M")
    added = set(scene.lab.run("tc", "qdisc").stdout.splitlines()) - set(before.splitlines())
    (limit,) = (line for line in added if "tbf" in line)
    assert "rate 8Mbit" in limit
    assert "burst 500000b" in limit
