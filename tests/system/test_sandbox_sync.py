# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker cannot be told is brought into the container whenever it joins, and again; what cannot be is refused."""

from functools import partial

import pytest

from tests.lab import Container, wait_until
from tests.system.equivalence import assert_settled, straight
from tests.system.plugin_lists import TUNING, commands, defaults, dual, main, simple, static, v4, v6, write_wrapper
from tests.system.scene import Scene


def test_connect_and_disconnect_while_running(scene: Scene) -> None:
    """On a second network the link has another name, and each time everything is there as soon as docker returns."""
    subnet = scene.subnet()
    name = scene.configure([main("bridge", subnet, static(v4(subnet), gateway=False)), TUNING])
    wanted = straight(scene.lab, name)
    network = scene.network(name)
    first, _ = scene.bridge_network()
    container = scene.run(first)
    for _ in range(2):
        scene.lab.docker("network", "connect", network, container.name)
        (added,) = (link.name for link in container.links() if link.name != "eth0")
        assert container.in_network("cat", f"/proc/sys/net/ipv4/conf/{added}/arp_filter").stdout.strip() == "1"
        assert_settled(scene.lab, container, wanted, added)
        scene.lab.docker("network", "disconnect", network, container.name)


def test_the_daemon_settles_again_when_it_starts(private_scene: Scene) -> None:
    """What is lost while it is away is brought back."""
    subnet = private_scene.subnet()
    write_wrapper(private_scene, commands(subnet))
    name = private_scene.configure([dual(subnet, kind="wrapper")])
    wanted = straight(private_scene.lab, name)
    container = private_scene.run(private_scene.network(name))
    assert_settled(private_scene.lab, container, wanted)
    private_scene.lab.stop_daemon()
    container.in_network("ip", "rule", "del", "priority", "100")
    container.in_network("ip", "address", "del", v6(subnet, 7), "dev", "eth0")
    container.in_network("sysctl", "-w", "net.ipv4.conf.eth0.proxy_arp=0")
    private_scene.lab.start_daemon()
    assert_settled(private_scene.lab, container, wanted)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("ip link add dummy0 type veth peer name dummy1", "a further link, dummy"),
        ("nft add table inet odd", "packet filter rules (nftables tables)"),
        ("tc qdisc add dev eth0 root handle 1: htb", "qdisc htb"),
    ],
)
def test_what_cannot_be_carried_is_refused(scene: Scene, script: str, words: str) -> None:
    """The error names the plugin and what it made, and nothing is left."""
    write_wrapper(scene, script)
    said = scene.run_refusal(scene.network(scene.configure([simple(scene.subnet(), kind="wrapper")])))
    assert "plugin wrapper made" in said
    assert words in said


def test_several_networks_at_start(scene: Scene) -> None:
    """Libnetwork joins them in any order, so the way out may change before the links are placed."""
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
            wait_until(partial(_has_setting, container, link.name), f"{link.name} settled")
        lab.docker("rm", "--force", name)
    assert lab.daemon is not None
    assert "endpoint.not_placed" not in lab.daemon.log()


def _has_setting(container: Container, link: str) -> bool:
    return container.in_network("cat", f"/proc/sys/net/ipv4/conf/{link}/arp_filter").stdout == "1\n"
