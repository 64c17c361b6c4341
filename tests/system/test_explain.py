# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge explain` for Docker's networks."""

import json
import sys

import pytest

from cni_bridge_spec import JsonObject, get_object, get_objects, get_str
from tests.lab import CommandFailed
from tests.system.scene import Scene, bridge, macvlan


def explain(scene: Scene, *arguments: str) -> JsonObject:
    """Run the command on the lab's host."""
    done = scene.lab.run(sys.executable, "-m", "cnm_bridge", "explain", "--json", *arguments)
    found: JsonObject = json.loads(done.stdout)
    return found


def test_a_docker_network(scene: Scene) -> None:
    """A network, by name or ID, is explained with its own options and pools; the host is unchanged afterwards."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    options = (f"--subnet={subnet.ipv4}", "--internal", "-o", "cni.args.A=1", "-o", "cni.ifname-prefix=lan")
    network = scene.docker_network(name, *options)
    before = scene.lab.state()
    identity = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    for asked in (network, identity):
        found = explain(scene, asked, "-o", "cni.args.B=2")
        assert (found["dockerNetwork"], found["name"], found["ifnamePrefix"]) == (network, name, "lan")
        assert (
            get_str(get_object(get_objects(found, "plugins")[0], "environment"), "CNI_ARGS")
            == "IgnoreUnknown=1;A=1;B=2"
        )
    assert scene.lab.state() == before


@pytest.mark.long
def test_bound_by_name(scene: Scene) -> None:
    """A network without `cni.network` uses the configuration of its name; a network of another driver is refused."""
    name = scene.configure(macvlan(scene.subnet()))
    assert explain(scene, name)["dockerNetwork"] is None
    network = scene.network(None, name=name)
    assert explain(scene, network)["dockerNetwork"] == network
    with pytest.raises(CommandFailed, match="of driver bridge, not of cni-bridge"):
        explain(scene, scene.builtin_network())
    with pytest.raises(CommandFailed, match="there is no Docker network 'nowhere'"):
        explain(scene, "nowhere")
