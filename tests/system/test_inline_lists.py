# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks that bring their list themselves."""

import json
import signal
import sys

from tests.system.scene import Scene, bridge, reaches

FILE = "/etc/cni-bridge/config.toml"


def test_a_network_that_brings_its_list(private_scene: Scene) -> None:
    """It is refused unless the operator allows it; it survives the daemon, and goes with the network."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    document = json.dumps({"cniVersion": "1.0.0", "name": "brought", "plugins": [*bridge(subnet)]})
    options = ("--ipam-driver", "null", "-o", f"cni.conflist={document}")
    assert "allow-inline = true" in scene.creation_refusal(*options)
    lab.write(FILE, "allow-inline = true\n")
    lab.restart_daemon()
    unusable = json.dumps({"cniVersion": "1.0.0", "name": "brought", "plugins": [{"type": "no-such-plugin"}]})
    refusal = scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.conflist={unusable}")
    assert "brought (option cni.conflist) cannot be used: no-such-plugin: not found in " in refusal
    lab.docker("network", "create", "-d", "cni-bridge", *options, "brought")
    lab.restart_daemon(signal.SIGKILL)
    container = scene.run("brought")
    assert reaches(container, subnet.gateway)
    assert subnet.ipv4 in lab.run(sys.executable, "-m", "cnm_bridge", "explain", "brought").stdout
    lab.docker("rm", "-f", container.name)
    lab.docker("network", "rm", "brought")
    on_disk = scene.configure(bridge(subnet), name="brought")
    assert f"use -o cni.network={on_disk}" in scene.creation_refusal(*options)
    lab.remove(FILE)
