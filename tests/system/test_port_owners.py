# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port belongs to one owner: what others publish, or listen on, is refused, also by the next daemon."""

import pytest

from tests.system.peer import ask, serving
from tests.system.ports import port_network
from tests.system.scene import Scene


def test_anothers_port(scene: Scene) -> None:
    """A port that another container has is refused by name, and nothing of it changes; then it is free again."""
    network, _ = port_network(scene)
    owner = scene.run(network, "-p", "8088:88")
    before = scene.lab.state()
    said = scene.run_refusal(network, "-p", "8088:89")
    assert "port 8088/tcp cannot be published: it is published for endpoint" in said
    assert owner.endpoint(network).endpoint_id in said
    assert scene.lab.wait_clean(before) == ""
    with serving(scene.lab, owner, 88):
        assert ask(scene.lab, None, "127.0.0.1", 8088) == owner.name
    scene.run(network, "-p", "8088:88/udp")  # another protocol has its own
    scene.lab.docker("rm", "-f", owner.name)
    scene.run(network, "-p", "8088:88")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_programs_port(scene: Scene, protocol: str) -> None:
    """A port that a program of the host listens on is not taken from it."""
    network, _ = port_network(scene)
    with serving(scene.lab, None, 8089, protocol=protocol):
        before = scene.lab.state()
        assert "Address already in use" in scene.run_refusal(network, "-p", f"8089:89/{protocol}")
        assert scene.lab.wait_clean(before) == ""
        assert ask(scene.lab, None, "127.0.0.1", 8089, protocol=protocol) == "host"


def test_a_port_of_dockers_own_network(scene: Scene) -> None:
    """What Docker itself has published is not taken from it."""
    network, _ = port_network(scene)
    scene.run(scene.builtin_network(), "-p", "8095:95")
    assert "Address already in use" in scene.run_refusal(network, "-p", "8095:95")


def test_the_same_port_twice(scene: Scene) -> None:
    """One port cannot lead to two."""
    network, _ = port_network(scene)
    assert "published twice" in scene.run_refusal(network, "-p", "8096:96", "-p", "8096:97")


def test_another_daemon_knows_whose_ports_are_whose(private_scene: Scene) -> None:
    """A daemon that was killed knows them again, and removes them with their container."""
    scene = private_scene
    network, _ = port_network(scene)
    before = scene.lab.state()
    owner = scene.run(network, "-p", "8100:100")
    scene.lab.restart_daemon(9)
    assert "it is published for endpoint" in scene.run_refusal(network, "-p", "8100:100")
    scene.lab.docker("rm", "-f", owner.name)
    assert scene.lab.wait_clean(before) == ""
    scene.run(network, "-p", "8100:100")
