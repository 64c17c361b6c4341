# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container with ports on two networks, one of which cannot publish them, starts, whichever Docker joins first."""

from typing import Final

import pytest

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str
from tests.lab import CommandFailed, Lab
from tests.system.calls import ask_status
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.scene import Scene, bridge

PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}}
STARTS: Final = 8
"""Docker joins the networks of a container in random order."""


def not_published(lab: Lab) -> list[str]:
    """Return the reasons why ports are not published, as `cni-bridge status` shows them."""
    endpoints = get_objects(ask_status(lab), "endpoints")
    return [get_str(endpoint, "notPublished") for endpoint in endpoints if find_str(endpoint, "notPublished")]


def container_on_two(scene: Scene, port_publisher: str, other: str, port: int) -> str:
    """Make a container with a port on two networks, the second of which cannot publish; return its name."""
    first = scene.network(scene.configure([*bridge(scene.subnet()), PORTMAP]), name=port_publisher)
    second = scene.network(scene.configure(bridge(scene.subnet())), name=other)
    name = scene.create(first, "-p", f"{port}:80")
    scene.lab.docker("network", "connect", second, name)
    return name


def test_the_gateway_can_publish(scene: Scene) -> None:
    """The container's port is reachable after every start."""
    name = container_on_two(scene, "aaa-publishes", "zzz-does-not", 8501)
    with outside(scene.lab) as there:
        for _ in range(STARTS):
            scene.lab.docker("start", name)
            container = scene.lab.container(name)
            assert not_published(scene.lab) == []
            with serving(scene.lab, container, 80):
                assert ask(scene.lab, there, HOST_IP, 8501) == name
            scene.lab.docker("stop", "--time", "0", name)


@pytest.mark.long
def test_the_gateway_cannot_publish(scene: Scene) -> None:
    """The container starts all the same; log and status show which ports are not published, and why."""
    name = container_on_two(scene, "zzz-publishes", "aaa-does-not", 8502)
    for _ in range(STARTS):
        scene.lab.docker("start", name)
        (reason,) = not_published(scene.lab)
        assert "has no plugin after its first with the capability portMappings" in reason
        assert "PORTS NOT PUBLISHED  NETWORK" in scene.lab.run("cni-bridge", "status").stdout
        scene.lab.docker("stop", "--time", "0", name)
        assert not_published(scene.lab) == []
    assert scene.lab.daemon is not None
    assert "endpoint.ports_not_published" in scene.lab.daemon.log()


def test_with_a_network_of_dockers_bridge_driver(scene: Scene) -> None:
    """Docker's bridge driver publishes the port, even if the CNI network is joined first."""
    builtin = scene.builtin_network(name="aaa-builtin")
    other = scene.network(scene.configure(bridge(scene.subnet())), name="zzz-ours")
    name = scene.create(other, "-p", "8503:80")
    scene.lab.docker("network", "connect", builtin, name)
    with outside(scene.lab) as there:
        for _ in range(STARTS // 2):
            scene.lab.docker("start", name)
            with serving(scene.lab, scene.lab.container(name), 80):
                assert ask(scene.lab, there, HOST_IP, 8503) == name
            scene.lab.docker("stop", "--time", "0", name)


def test_a_running_container_that_joins_a_network_that_cannot(scene: Scene) -> None:
    """The ports move to the network that libnetwork chooses; status shows when that one cannot publish them."""
    port_publisher = scene.network(scene.configure([*bridge(scene.subnet()), PORTMAP]), name="zzz-moves")
    other = scene.network(scene.configure(bridge(scene.subnet())), name="aaa-moves")
    container = scene.run(port_publisher, "-p", "8504:80")
    with outside(scene.lab) as there, serving(scene.lab, container, 80):
        scene.lab.docker("network", "connect", other, container.name)
        assert len(not_published(scene.lab)) == 1
        scene.lab.docker("network", "disconnect", other, container.name)
        assert not_published(scene.lab) == []
        assert ask(scene.lab, there, HOST_IP, 8504) == container.name


def test_ports_that_the_only_network_cannot_publish(scene: Scene) -> None:
    """If no network can publish the ports, the container does not start, by whichever name the network was given.

    Docker keeps the container's network: it starts as soon as the list has the plugin.
    """
    network, _ = scene.bridge_network()
    network_id = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    for name in (network, network_id, network_id[:12]):
        before = scene.lab.state()
        assert "ports cannot be published" in scene.run_refusal(name, "-p", "8505:80")
        assert scene.lab.wait_clean(before) == ""
    configuration = scene.configure(bridge(scene.subnet()))
    network = scene.network(configuration)
    container = scene.create(network, "-p", "8506:80")
    with pytest.raises(CommandFailed, match="ports cannot be published"):
        scene.lab.docker("start", container)
    names = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
    assert scene.lab.docker("inspect", "--format", names, container).split() == [network]
    scene.configure([*bridge(scene.subnet()), PORTMAP], name=configuration)
    scene.lab.docker("start", container)
