# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port published at an address of the host leads to an address of the same family, or is refused."""

import pytest

from spec import JsonObject
from tests.system.scene import Scene, bridge

PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}


@pytest.mark.parametrize(("place", "said"), [("[::1]", "the container has no IPv6 address"), ("127.0.0.1", None)])
def test_an_ipv4_network(scene: Scene, place: str, said: str | None) -> None:
    """`portmap` would make no rule for `-p [::1]:…`, and say nothing."""
    network = scene.network(scene.configure([*bridge(scene.subnet()), PORTMAP]))
    if said is None:
        scene.run(network, "-p", f"{place}:8180:80")
        return
    before = scene.lab.state()
    assert said in scene.run_refusal(network, "-p", f"{place}:8180:80")
    assert scene.lab.wait_clean(before) == ""
