# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A configuration that changes on disk while containers run."""

import sys

from tests.system.scene import Scene, bridge, reaches, wait_logged


def test_a_configuration_that_changes(private_scene: Scene) -> None:
    """It is validated without a call of Docker's, and shown until the containers of the old content are gone."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet), name="lan"))
    container = scene.run(network)
    scene.configure([*bridge(subnet), {"type": "no-such-plugin"}], name="lan")
    assert "no-such-plugin" in wait_logged(lab, "configuration.invalid")
    assert reaches(container, subnet.gateway)
    scene.configure([*bridge(subnet), {"type": "tuning"}], name="lan")
    wait_logged(lab, "configuration.changed")
    for command in (("status",), ("ls", "--networks")):
        shown = lab.run(sys.executable, "-m", "cnm_bridge", *command).stdout
        assert "since 1 endpoint was made" in shown
    lab.docker("rm", "-f", container.name)
    scene.run(network)
    assert "since 1 endpoint" not in lab.run(sys.executable, "-m", "cnm_bridge", "status").stdout
