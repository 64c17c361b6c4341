# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container without IPv6 (`--sysctl net.ipv6.conf.all.disable_ipv6=1`) on a list that gives IPv6 addresses.

VPN containers set this, so that no traffic leaves beside the tunnel.
"""

from collections.abc import Sequence

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from tests.lab import Container, Engine, wait_until
from tests.system.scene import LISTS, Scene, bridge, reaches

SYSCTLS = "com.docker.network.endpoint.sysctls"
OFF = ("--sysctl", "net.ipv6.conf.all.disable_ipv6=1")


def read_ipv6(container: Container) -> list[str]:
    """Return what a container has of IPv6: addresses, routes, and links on which it is not disabled."""
    addresses = [
        get_str(address, "local") for link in container.ip("-6", "addr") for address in get_objects(link, "addr_info")
    ]
    routes = [get_str(route, "dst") for route in container.ip("-6", "route")]
    links = container.exec("sh", "-c", "cd /proc/sys/net/ipv6/conf; grep -l 0 */disable_ipv6 || true")
    return [*addresses, *routes, *links.split()]


def has_ipv4_alone(container: Container, *links: str) -> bool:
    """Return whether a container has these links, each with an IPv4 address, and nothing of IPv6."""
    assert read_ipv6(container) == []
    return versions(container) == {name: [4] for name in links}


def versions(container: Container) -> dict[str, list[int]]:
    """Return the IP versions of the addresses of each link."""
    return {link.name: sorted(address.version for address in link.addresses) for link in container.links()}


@pytest.mark.smoke
@pytest.mark.parametrize("plugins", [name for name in LISTS if "dual stack" in name])
@pytest.mark.representatives("bridge dual stack")
def test_no_link_has_ipv6(private_scene: Scene, beside_ours: Sequence[str], plugins: str) -> None:
    """Not when the container starts, when it is started again, and when the daemon has been restarted."""
    scene, lab = private_scene, private_scene.lab
    network = scene.network(scene.configure(LISTS[plugins](scene.subnet())))
    container = scene.run(network, *OFF)
    assert has_ipv4_alone(container, "eth0")
    lab.docker("restart", "-t", "0", container.name)
    assert has_ipv4_alone(container, "eth0")
    lab.restart_daemon()
    further = scene.builtin_network()
    lab.docker("network", "connect", *beside_ours, further, container.name)  # asks about each endpoint
    lab.docker("network", "disconnect", further, container.name)
    assert has_ipv4_alone(container, "eth0")


@pytest.mark.parametrize("plugins", [name for name in LISTS if "dual stack" in name])
@pytest.mark.representatives("ptp dual stack")
def test_one_link_has_none(scene: Scene, plugins: str) -> None:
    """A sysctl of the endpoint disables IPv6 on its link alone: Docker learns no IPv6 address, from the start."""
    first = scene.network(scene.configure(LISTS[plugins](scene.subnet())))
    container = scene.run(f"name={first},driver-opt={SYSCTLS}=net.ipv6.conf.IFNAME.disable_ipv6=1")
    setting = "/proc/sys/net/ipv6/conf/eth0/disable_ipv6"
    for _ in range(2):
        wait_until(lambda: container.exec("cat", setting) == "1", "IPv6 is disabled")  # before Engine 28 in a moment
        assert versions(container) == {"eth0": [4]}
        assert [address.version for address in container.endpoint(first).addresses] == [4]
        scene.lab.docker("restart", "-t", "0", container.name)
    assert "0 differences" in scene.lab.run("cni-bridge", "inspect", "--check").stdout
    second, _ = scene.bridge_network(ipv6=True)
    scene.lab.docker("network", "connect", second, container.name)
    assert sorted(versions(container).values()) == [[4], [4, 6]]


def test_it_has_all_of_ipv4(scene: Scene) -> None:
    """Its gateway and its own name answer, and `check` misses nothing."""
    network, subnet = scene.bridge_network(ipv6=True)
    container = scene.run(network, *OFF, "--hostname", "box")
    assert reaches(container, subnet.gateway)
    assert f"{container.endpoint(network).addresses[0].ip}\tbox" in container.exec("cat", "/etc/hosts").splitlines()
    assert "0 differences" in scene.lab.run("cni-bridge", "inspect", "--check").stdout


@pytest.mark.engine_since("26", "leaves net.ipv6.conf.all.disable_ipv6 to the user, also for links that come later")
@pytest.mark.long
def test_networks_that_come_and_go(scene: Scene) -> None:
    """The link of a network that is connected later has no IPv6 either, and default routes can be moved to it."""
    one, two = (scene.bridge_network(ipv6=True)[0] for _ in range(2))
    container = scene.run(one, *OFF)
    for _ in range(2):
        scene.lab.docker("network", "connect", two, container.name)
        assert read_ipv6(container) == []
        assert sorted(address.version for link in container.links() for address in link.addresses) == [4, 4]
        scene.lab.docker("network", "disconnect", one, container.name)
        one, two = two, one
        assert read_ipv6(container) == []


def test_a_list_that_enables_ipv6(scene: Scene) -> None:
    """The container's setting goes before that of a list for router advertisements."""
    tuning: JsonObject = {"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "0"}}
    network = scene.network(scene.configure([*bridge(scene.subnet()), tuning]))
    assert has_ipv4_alone(scene.run(network, *OFF), "eth0")


@pytest.mark.representatives("cni-bridge")
@pytest.mark.parametrize("driver", ["cni-bridge", "docker"])
def test_addresses_of_an_ipam_driver(scene: Scene, engine: Engine, driver: str) -> None:
    """From Engine 28 on, Docker requests no IPv6 address for such a container, although its network has a pool."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet, ipv6=True))
    own = ("--ipam-driver", "cni-bridge", "--ipam-opt", f"cni.ipam={name}")
    given = ("--subnet", subnet.ipv4, "--subnet", subnet.ipv6)
    network = scene.docker_network(name, "--ipv6", *(own if driver == "cni-bridge" else given))
    container = scene.run(network, *OFF)
    assert has_ipv4_alone(container, "eth0")
    if engine.version >= (28,):
        assert [address.version for address in container.endpoint(network).addresses] == [4]
