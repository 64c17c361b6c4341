# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A dual-stack list on a host whose links accept no IPv6 address."""

import re

from cni_bridge_spec import get_objects
from tests.system.calls import ask_status, wait_torn_down
from tests.system.scene import Scene, bridge

_OFF = "net.ipv6.conf.all.disable_ipv6"


def test_the_cause_and_the_fix(private_scene: Scene) -> None:
    """Both `network create` and `run` name them, nothing is left, and the command that they show is the cure."""
    lab = private_scene.lab
    configuration = private_scene.configure(bridge(private_scene.subnet(), ipv6=True))
    network = private_scene.network(configuration)
    lab.run("sysctl", "-qw", f"{_OFF}=1")
    refusals = (
        private_scene.run_refusal(network),
        private_scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={configuration}"),
    )
    for refusal in refusals:
        assert f"CNI configuration {configuration} gives IPv6 addresses" in refusal
    wait_torn_down(lab)
    assert get_objects(ask_status(lab), "endpoints") == get_objects(ask_status(lab), "pendingTeardowns") == ()
    fix = re.search(rf"sysctl -w {_OFF}=0 && echo '{_OFF} = 0' >>\S+(?=;)", refusals[0])
    assert fix is not None
    lab.run("sh", "-c", fix[0])
    private_scene.run(network)
    lab.remove(fix[0].rpartition(">>")[2])
