# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's own name in its /etc/hosts: the addresses of its links, as on a network of Docker's own bridge."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from tests.lab import Container
from tests.system.scene import Scene, Subnet, bridge

_NAME = "box"
_DOCKERS = ("127.0.0.1", "::1", "fe00::", "ff00::", "ff02::")
"""What the addresses in every container's file begin with."""


def own_lines(text: str) -> list[str]:
    """Return the lines of a file, without those that every container has."""
    return [line for line in text.splitlines() if not line.startswith(_DOCKERS)]


def expected(container: Container, *networks: str) -> list[str]:
    """Return the lines of the addresses that Docker shows for a container that is called `box`."""
    addresses = [address for network in networks for address in container.endpoint(network).addresses]
    return [f"{address.ip}\t{_NAME}" for address in addresses]


def dual_stack(scene: Scene) -> str:
    """Make a network whose list gives both families; return its name."""
    return scene.bridge_network(ipv6=True)[0]


@pytest.mark.smoke
def test_the_first_process_finds_its_own_name(scene: Scene) -> None:
    """By IPv4 and IPv6, with a domain name, and in a read-only container, too."""
    network = dual_stack(scene)
    name, domain = ("--hostname", _NAME), ("--domainname", "lan.example")
    for options, names in ((name, _NAME), ((*name, "--read-only"), _NAME), ((*name, *domain), "box.lan.example box")):
        text = scene.lab.docker("run", "--rm", "--net", network, *options, "busybox", "cat", "/etc/hosts")
        addresses = [ip_address(line.removesuffix(f"\t{names}")) for line in own_lines(text)]
        assert [address.version for address in addresses] == [4, 6]


def test_it_is_looked_up(scene: Scene) -> None:
    """A container reaches itself by its name, also after a restart."""
    container = scene.run(scene.bridge_network()[0], "--hostname", _NAME)
    for _ in range(2):
        container.exec("ping", "-c", "1", "-w", "5", _NAME)
        scene.lab.docker("restart", "-t", "0", container.name)


@pytest.mark.moves("a container in the host's PID namespace has no first process")
def test_a_container_in_the_hosts_pid_namespace(scene: Scene) -> None:
    """It has no process with PID 1, and its name nevertheless."""
    network = dual_stack(scene)
    container = scene.run(network, "--hostname", _NAME, "--pid", "host")
    assert own_lines(container.exec("cat", "/etc/hosts")) == expected(container, network)


@pytest.mark.long
@pytest.mark.engine_since("28", "removes only the lines of the network that a container leaves")
def test_networks_that_come_and_go(private_scene: Scene, beside_ours: Sequence[str]) -> None:
    """Each has its lines while the container is connected, and only then, also after a restart of the daemon."""
    scene, lab = private_scene, private_scene.lab
    one, two, dockers = dual_stack(scene), dual_stack(scene), scene.builtin_network()
    container = scene.run(one, "--hostname", _NAME)

    def has_lines_of(*networks: str) -> bool:
        return sorted(own_lines(container.exec("cat", "/etc/hosts"))) == sorted(expected(container, *networks))

    assert has_lines_of(one)
    for _ in range(2):
        lab.docker("network", "connect", two, container.name)
        assert has_lines_of(one, two)
        lab.restart_daemon()
        lab.docker("network", "disconnect", two, container.name)
        assert has_lines_of(one)
    lab.docker("network", "connect", two, container.name)
    lab.docker("network", "connect", *beside_ours, dockers, container.name)
    assert has_lines_of(one, two, dockers)
    lab.docker("network", "disconnect", one, container.name)
    assert has_lines_of(two, dockers)
    lab.docker("restart", "-t", "0", container.name)
    assert has_lines_of(two, dockers)


@pytest.mark.engine_since("28", "removes only the lines of the network that a container leaves")
def test_what_the_container_made_of_the_file_stays(scene: Scene) -> None:
    """Its own lines do, when a network comes and goes; and so does a file of the user in the place of Docker's."""
    one, two = dual_stack(scene), dual_stack(scene)
    container = scene.run(one, "--hostname", _NAME, "--add-host", "mapped:::ffff:192.0.2.1")
    container.exec("sh", "-c", "echo '192.0.2.2 friend' >>/etc/hosts")
    scene.lab.docker("network", "connect", two, container.name)
    scene.lab.docker("network", "disconnect", two, container.name)
    assert sorted(own_lines(container.exec("cat", "/etc/hosts"))) == sorted(
        (*expected(container, one), "::ffff:192.0.2.1\tmapped", "192.0.2.2 friend")
    )
    scene.lab.write("/run/own.hosts", "::ffff:192.0.2.3\tbox\n")
    mounted = ("--hostname", _NAME, "-v", "/run/own.hosts:/etc/hosts")
    scene.lab.docker("run", "--rm", "--net", one, *mounted, "busybox", "true")
    assert scene.lab.read("/run/own.hosts") == "::ffff:192.0.2.3\tbox\n"


@pytest.mark.representatives("cni-bridge")
@pytest.mark.parametrize("ipam", ["docker", "cni-bridge"])
def test_addresses_of_an_ipam_driver(scene: Scene, ipam: str) -> None:
    """Those of Docker's own IPAM, and of this driver's."""
    subnet: Subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    own = ("--ipam-driver", "cni-bridge", "--ipam-opt", f"cni.ipam={name}")
    network = scene.docker_network(name, *(own if ipam == "cni-bridge" else ("--subnet", subnet.ipv4)))
    container = scene.run(network, "--hostname", _NAME)
    assert own_lines(container.exec("cat", "/etc/hosts")) == expected(container, network)
