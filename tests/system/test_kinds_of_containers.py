# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Containers of other kinds than the plain one: with a shared network, with names, that cannot write."""

import re

import pytest

from tests.lab import Container, LabError, wait_until
from tests.system.equivalence import assert_settled, straight
from tests.system.namespace_view import View
from tests.system.plugin_lists import commands, dual, write_wrapper
from tests.system.scene import Scene, reaches

REMAPPED = 100000
"""The first of the user IDs that stand for root's and those after it."""


def test_a_shared_network(scene: Scene) -> None:
    """`--network container:` shares all there is, also what was settled; it ends with the one that owns it."""
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure([dual(subnet, kind="wrapper")])
    network = scene.network(name)
    before = scene.lab.state()
    wanted = straight(scene.lab, name)
    owner = scene.run(network)
    guest = scene.run(f"container:{owner.name}")
    assert_settled(scene.lab, owner, wanted)
    # not what `ip address` shows: of two looks at one namespace the kernel may have changed an address in between
    assert guest.exec("readlink", "/proc/self/ns/net") == owner.exec("readlink", "/proc/self/ns/net")
    assert reaches(guest, subnet.gateway)
    scene.lab.docker("restart", "-t", "0", guest.name)
    assert_settled(scene.lab, owner, wanted)
    assert reaches(guest, subnet.gateway)
    scene.lab.docker("rm", "-f", guest.name)
    assert_settled(scene.lab, owner, wanted)
    scene.lab.docker("rm", "-f", owner.name)
    assert scene.lab.wait_clean(before) == ""


def addresses_of(container: Container, name: str) -> set[str]:
    """Give the addresses that the container finds for a name; none where there is no such name."""
    done = container.exec("sh", "-c", f"nslookup {name} 127.0.0.11 || true")
    _, _, answer = done.partition("Name:")
    return {line.split()[-1] for line in answer.splitlines() if line.startswith("Address")}


def known_as(looking: Container, name: str, wanted: set[str]) -> None:
    """Assert that a name has these addresses; Docker knows a container's names a moment after it has started."""
    try:
        wait_until(lambda: addresses_of(looking, name) == wanted, name)
    except LabError:
        pytest.fail(f"{name} is {addresses_of(looking, name)}, not {wanted}")


def test_names(scene: Scene) -> None:
    """Name, short ID and aliases, on the network that they were given on; of both families; and none of strangers."""
    blue, _ = scene.bridge_network(ipv6=True)
    green, _ = scene.bridge_network()
    server = scene.run(blue, "--network-alias", "db", "--network-alias", "store")
    scene.lab.docker("network", "connect", "--alias", "backup", green, server.name)
    # what Docker does not know it asks others; nobody is there, and that is found at once
    on_blue, on_green = scene.run(blue, "--dns", "127.0.0.1"), scene.run(green, "--dns", "127.0.0.1")
    of_blue = {str(address.ip) for address in server.endpoint(blue).addresses}
    of_green = {str(address.ip) for address in server.endpoint(green).addresses}
    assert len(of_blue) == 2
    identity = str(server.inspect()["Id"])[:12]
    for name in (server.name, identity, "db", "store"):
        known_as(on_blue, name, of_blue)
    for name in (server.name, identity, "backup"):
        known_as(on_green, name, of_green)
    known_as(on_blue, "backup", set())
    known_as(on_green, "db", set())
    known_as(on_blue, on_green.name, set())
    assert reaches(on_blue, "db")
    assert reaches(on_green, "backup")
    scene.lab.docker("network", "disconnect", green, server.name)
    known_as(on_green, "backup", set())


def test_an_alias_of_two(scene: Scene) -> None:
    """One alias of several containers is all of their addresses."""
    network, _ = scene.bridge_network()
    servers = [scene.run(network, "--network-alias", "web") for _ in range(2)]
    found = {str(address.ip) for server in servers for address in server.endpoint(network).addresses}
    known_as(scene.run(network), "web", found)


def test_a_container_that_cannot_write(scene: Scene) -> None:
    """A read-only root file system, no capabilities, another user: the network is made from outside."""
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure([dual(subnet, kind="wrapper")])
    wanted = straight(scene.lab, name)
    options = ("--read-only", "--cap-drop", "ALL", "--user", "1000:1000", "--security-opt", "no-new-privileges")
    container = scene.run(scene.network(name), *options)
    assert_settled(scene.lab, container, wanted)
    assert container.exec("id", "-u") == "1000"
    assert "Read-only" in container.exec("sh", "-c", "touch /etc/hosts 2>&1 || touch /x 2>&1 || true")


def test_a_container_of_the_hosts_pid_and_ipc(scene: Scene) -> None:
    """Other namespaces than the network's do not matter."""
    network, subnet = scene.bridge_network()
    container = scene.run(network, "--pid", "host", "--ipc", "host", "--uts", "host")
    assert reaches(container, subnet.gateway)


@pytest.fixture(name="remapped")
def make_remapped(private_scene: Scene) -> Scene:
    """A scene whose containers' root is nobody of the host's (`--userns-remap`)."""
    lab = private_scene.lab
    for file in ("/etc/subuid", "/etc/subgid"):
        lab.write(file, f"nobody:{REMAPPED}:65536\nnogroup:{REMAPPED}:65536\n")
    # in a user namespace the kernel mounts /proc only where one is seen without anything mounted upon it
    lab.run("mkdir", "/run/lab/proc")
    lab.run("mount", "-t", "proc", "proc", "/run/lab/proc")
    lab.docker("save", "--output", "/run/lab/image.tar", "busybox")
    lab.stop_dockerd()
    lab.start_dockerd("--userns-remap=nobody:nogroup")
    lab.docker("load", "--input", "/run/lab/image.tar")  # its images are others
    return private_scene


def without_hidden(wanted: View) -> View:
    """Leave out the settings that the kernel has only in namespaces of the host's own users."""
    settings = wanted["settings of the namespace"]
    assert isinstance(settings, dict)
    shown = {
        name: value
        for name, value in settings.items()
        if not re.match(r"net/(core/xfrm_|ipv6/route/(?!max_size))", name)
    }
    return {**wanted, "settings of the namespace": shown}


def test_remapped_users(remapped: Scene) -> None:
    """The sandbox belongs to a user namespace that is not the host's; links, addresses and what is settled reach it."""
    subnet = remapped.subnet()
    write_wrapper(remapped, commands(subnet))
    name = remapped.configure([dual(subnet, kind="wrapper")])
    network = remapped.network(name)
    before = remapped.lab.state()
    wanted = without_hidden(straight(remapped.lab, name))
    container = remapped.run(network)
    assert container.exec("cat", "/proc/self/uid_map").split() == ["0", str(REMAPPED), "65536"]
    assert_settled(remapped.lab, container, wanted)
    remapped.lab.docker("network", "disconnect", network, container.name)
    remapped.lab.docker("network", "connect", network, container.name)
    assert_settled(remapped.lab, container, wanted, container.links()[0].name)
    remapped.lab.docker("rm", "-f", container.name)
    assert remapped.lab.wait_clean(before) == ""
