# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port has one owner: a port that another container, program or network uses is refused, also after a restart."""

import pytest

from tests.system.peer import ask, serving
from tests.system.ports import port_network
from tests.system.scene import Scene


def test_a_port_of_another_container(scene: Scene) -> None:
    """It is refused with the name of its owner, and is free when the owner is removed."""
    network, _ = port_network(scene)
    owner = scene.run(network, "-p", "8088:88")
    before = scene.lab.state()
    error = scene.run_refusal(network, "-p", "8088:89")
    assert f"port 8088/tcp cannot be published: it is already published for container {owner.name} (endpoint" in error
    assert owner.endpoint(network).endpoint_id not in error
    assert scene.lab.wait_clean(before) == ""
    with serving(scene.lab, owner, 88):
        assert ask(scene.lab, None, "127.0.0.1", 8088) == owner.name
    scene.run(network, "-p", "8088:88/udp")  # another protocol has its own
    scene.lab.docker("rm", "-f", owner.name)
    scene.run(network, "-p", "8088:88")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_port_of_a_program(scene: Scene, protocol: str) -> None:
    """A port on which a program of the host listens is refused."""
    network, _ = port_network(scene)
    with serving(scene.lab, None, 8089, protocol=protocol):
        before = scene.lab.state()
        assert "Address already in use by python " in scene.run_refusal(network, "-p", f"8089:89/{protocol}")
        assert scene.lab.wait_clean(before) == ""
        assert ask(scene.lab, None, "127.0.0.1", 8089, protocol=protocol) == "host"


def test_a_port_of_dockers_own_network(scene: Scene) -> None:
    """A port that Docker itself has published is refused."""
    network, _ = port_network(scene)
    scene.run(scene.builtin_network(), "-p", "8095:95")
    error = scene.run_refusal(network, "-p", "8095:95")
    assert "Address already in use by a container that Docker itself has published" in error
    assert scene.lab.docker("ps", "--quiet", "--filter", "publish=8095").strip()


@pytest.mark.long
def test_the_owner_of_a_port_after_a_restart(private_scene: Scene) -> None:
    """A daemon that was killed and restarted still refuses the port, and frees it when the container is removed."""
    scene = private_scene
    network, _ = port_network(scene)
    before = scene.lab.state()
    owner = scene.run(network, "-p", "8100:100")
    scene.lab.restart_daemon(9)
    assert f"it is already published for container {owner.name}" in scene.run_refusal(network, "-p", "8100:100")
    scene.lab.docker("rm", "-f", owner.name)
    assert scene.lab.wait_clean(before) == ""
    scene.run(network, "-p", "8100:100")
