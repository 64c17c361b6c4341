# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker's protocol does not have is made in the sandbox at each join; what cannot be carried is refused."""

from functools import partial

import pytest

from tests.lab import Container, wait_until
from tests.system.plugin_lists import TUNING, defaults, main, static, v4
from tests.system.scene import Scene


def test_connect_beside_dockers_own_bridge(scene: Scene) -> None:
    """Of a container with exposed ports, for which older engines do not call; `eth0` is Docker's, so ours is moved."""
    subnet = scene.subnet()
    name = scene.configure([main("bridge", subnet, static(v4(subnet), gateway=False)), TUNING])
    network = scene.network(name)
    container = scene.run(scene.builtin_network(), "--expose", "80")
    scene.lab.docker("network", "connect", network, container.name)
    (added,) = (link.name for link in container.links() if link.name != "eth0")
    setting = f"/proc/sys/net/ipv4/conf/{added}/arp_filter"
    wait_until(lambda: container.in_network("cat", setting).stdout.strip() == "1", "the link is complete", 10)


@pytest.mark.long
def test_several_networks_at_the_start(scene: Scene) -> None:
    """Libnetwork joins them in any order, so the gateway may change before the links are placed."""
    lab = scene.lab
    networks = []
    for _ in range(2):
        subnet = scene.subnet()
        ipam = static(v4(subnet), routes=defaults(4))
        networks.append(scene.network(scene.configure([main("bridge", subnet, ipam), TUNING])))
    for _ in range(6):
        name = scene.create(networks[1])
        lab.docker("network", "connect", networks[0], name)
        lab.docker("start", name)
        container = lab.container(name)
        for link in container.links():
            wait_until(partial(_has_setting, container, link.name), f"the sysctls of {link.name}")
        lab.docker("rm", "--force", name)
    assert lab.daemon is not None
    assert "endpoint.not_placed" not in lab.daemon.log()


def _has_setting(container: Container, link: str) -> bool:
    return container.in_network("cat", f"/proc/sys/net/ipv4/conf/{link}/arp_filter").stdout == "1\n"
