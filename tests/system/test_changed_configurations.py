# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A configuration that changes on disk while containers run."""

import sys

from tests.system.scene import Scene, bridge


def test_a_configuration_that_changes(private_scene: Scene) -> None:
    """It is shown until the containers of the old content are gone."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet), name="lan"))
    container = scene.run(network)
    scene.configure([*bridge(subnet), {"type": "tuning"}], name="lan")
    for command in (("status",), ("ls", "--networks")):
        shown = lab.run(sys.executable, "-m", "cnm_bridge", *command).stdout
        assert "since 1 endpoint was made" in shown
    lab.docker("rm", "-f", container.name)
    scene.run(network)
    assert "since 1 endpoint" not in lab.run(sys.executable, "-m", "cnm_bridge", "status").stdout
