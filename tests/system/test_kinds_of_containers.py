# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Special containers: with a shared network, with aliases, read-only, with host namespaces, with remapped users."""

import re
from grp import getgrgid
from pwd import getpwuid

import pytest

from tests.system.equivalence import assert_equivalent, run_directly
from tests.system.namespace_view import View
from tests.system.plugin_lists import commands, dual, write_wrapper
from tests.system.scene import Scene, reaches

REMAPPED = 100000
"""The first of the user IDs to which a container's users are mapped."""
UNPRIVILEGED = 65534
"""The user and the group, of the host, to which Docker grants these IDs."""


def test_a_shared_network(scene: Scene) -> None:
    """`--network container:` shares the owner's network, with everything that plugins made."""
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure([dual(subnet, kind="wrapper")])
    network = scene.network(name)
    before = scene.lab.state()
    wanted = run_directly(scene.lab, name)
    owner = scene.run(network)
    guest = scene.run(f"container:{owner.name}")
    assert_equivalent(scene.lab, owner, wanted)
    # not compared by `ip address`: the kernel may change an address between two calls
    assert guest.exec("readlink", "/proc/self/ns/net") == owner.exec("readlink", "/proc/self/ns/net")
    assert reaches(guest, subnet.gateway)
    scene.lab.docker("restart", "-t", "0", guest.name)
    assert_equivalent(scene.lab, owner, wanted)
    assert reaches(guest, subnet.gateway)
    scene.lab.docker("rm", "-f", guest.name)
    assert_equivalent(scene.lab, owner, wanted)
    scene.lab.docker("rm", "-f", owner.name)
    assert scene.lab.wait_clean(before) == ""


def test_a_read_only_unprivileged_container(scene: Scene) -> None:
    """The network needs no write access, capability or root user in the container: it is made from outside."""
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure([dual(subnet, kind="wrapper")])
    wanted = run_directly(scene.lab, name)
    options = ("--read-only", "--cap-drop", "ALL", "--user", "1000:1000", "--security-opt", "no-new-privileges")
    container = scene.run(scene.network(name), *options)
    assert_equivalent(scene.lab, container, wanted)
    assert container.exec("id", "-u") == "1000"
    assert "Read-only" in container.exec("sh", "-c", "touch /etc/hosts 2>&1 || touch /x 2>&1 || true")


@pytest.mark.moves("it has no first process of its own")
def test_a_container_in_the_hosts_pid_ipc_and_uts_namespaces(scene: Scene) -> None:
    """Only the network namespace matters."""
    network, subnet = scene.bridge_network()
    container = scene.run(network, "--pid", "host", "--ipc", "host", "--uts", "host")
    assert reaches(container, subnet.gateway)


@pytest.fixture(name="remapped")
def make_remapped(private_scene: Scene) -> Scene:
    """A scene whose containers have users that are not the host's (`--userns-remap`)."""
    lab = private_scene.lab
    user, group = getpwuid(UNPRIVILEGED).pw_name, getgrgid(UNPRIVILEGED).gr_name
    for file in ("/etc/subuid", "/etc/subgid"):
        lab.write(file, f"{user}:{REMAPPED}:65536\n{group}:{REMAPPED}:65536\n")
    # in a user namespace the kernel mounts /proc only if another one is visible with nothing mounted over it
    lab.run("mkdir", "/run/lab/proc")
    lab.run("mount", "-t", "proc", "proc", "/run/lab/proc")
    lab.docker("save", "--output", "/run/lab/image.tar", "busybox")
    lab.stop_dockerd()
    lab.start_dockerd(f"--userns-remap={user}:{group}")
    lab.docker("load", "--input", "/run/lab/image.tar")  # remapped engines keep images of their own
    return private_scene


def without_hidden(wanted: View) -> View:
    """Leave out the sysctls that the kernel shows only in namespaces of the host's own users."""
    settings = wanted["settings of the namespace"]
    assert isinstance(settings, dict)
    shown = {
        name: value
        for name, value in settings.items()
        if not re.match(r"net/(core/xfrm_|ipv6/route/(?!max_size))", name)
    }
    return {**wanted, "settings of the namespace": shown}


def test_remapped_users(remapped: Scene) -> None:
    """A sandbox in another user namespace than the host's has everything that plugins made."""
    subnet = remapped.subnet()
    write_wrapper(remapped, commands(subnet))
    name = remapped.configure([dual(subnet, kind="wrapper")])
    network = remapped.network(name)
    before = remapped.lab.state()
    wanted = without_hidden(run_directly(remapped.lab, name))
    container = remapped.run(network)
    assert container.exec("cat", "/proc/self/uid_map").split() == ["0", str(REMAPPED), "65536"]
    assert_equivalent(remapped.lab, container, wanted)
    remapped.lab.docker("network", "disconnect", network, container.name)
    remapped.lab.docker("network", "connect", network, container.name)
    assert_equivalent(remapped.lab, container, wanted, container.links()[0].name)
    remapped.lab.docker("rm", "-f", container.name)
    assert remapped.lab.wait_clean(before) == ""
