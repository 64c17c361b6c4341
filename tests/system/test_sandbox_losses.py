# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The sandbox's sync when a container has several networks, loses one, or has IPv6 disabled by Docker."""

from functools import partial

import pytest

from tests.lab import Container
from tests.lab.waiting import wait_until
from tests.system.scene import PREV_RESULT, Scene, bridge


def write_customiser(scene: Scene, commands: str, name: str = "customiser") -> None:
    """Put a chained plugin on the host that runs commands in the namespace."""
    scene.plugin(
        name,
        f"""
input=$(cat)
[ "$CNI_COMMAND" = ADD ] || exit 0
nsenter --net="$CNI_NETNS" sh -eu >&2 <<'COMMANDS'
{commands}
COMMANDS
printf '%s' "$input" | python3 -c "{PREV_RESULT}"
""",
    )


def shows(container: Container, *command: str, words: str) -> bool:
    """Return whether the output of a command in the container's network contains some words."""
    return words in container.in_network(*command).stdout


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.representatives("True")
def test_source_routing_on_two_networks(scene: Scene, *, running: bool) -> None:
    """`sbr` uses the first free table, the same in each staging namespace; in the container each link has its own."""
    subnets = scene.subnet(), scene.subnet()
    networks = [scene.network(scene.configure([*bridge(subnet), {"type": "sbr"}])) for subnet in subnets]
    name = scene.run(networks[0]).name if running else scene.create(networks[0])
    scene.lab.docker("network", "connect", networks[1], name)
    if not running:
        scene.lab.docker("start", name)  # both are synchronised at the same time
    container = scene.lab.container(name)
    gateways = {subnet.ipv4.removesuffix("0/24"): subnet.gateway for subnet in subnets}
    for link in container.links():
        (own,) = (address.ip for address in link.addresses)
        hop = f"via {gateways[str(own).rpartition('.')[0] + '.']} dev {link.name}"
        command = ("ip", "route", "get", "192.0.2.9", "from", str(own))
        wait_until(partial(shows, container, *command, words=hop), f"a route of its own for {own}")
    # a further sync, which each disconnect starts, changes nothing
    before = container.in_network("ip", "rule").stdout
    third, _ = scene.bridge_network()
    scene.lab.docker("network", "connect", third, container.name)
    scene.lab.docker("network", "disconnect", third, container.name)
    assert container.in_network("ip", "rule").stdout == before


def test_ipv6_of_a_link_without_a_global_address(scene: Scene) -> None:
    """Docker disables IPv6 on a link without a global address; the IPv6 routes and addresses of plugins are kept."""
    subnet = scene.subnet()
    write_customiser(
        scene,
        """
ip address add fe80::77/64 dev eth0 nodad
ip route add 10.6.0.0/16 via inet6 fe80::1 dev eth0
ip -6 route add fd99::/64 via fe80::1 dev eth0
""",
    )
    container = scene.run(scene.network(scene.configure([*bridge(subnet), {"type": "customiser"}])))
    wait_until(lambda: shows(container, "ip", "-6", "address", words="fe80::77/64"), "a link-local address")
    wait_until(lambda: shows(container, "ip", "route", words="10.6.0.0/16 via inet6 fe80::1 dev eth0"), "a route")
    wait_until(lambda: shows(container, "ip", "-6", "route", words="fd99::/64 via fe80::1 dev eth0"), "a route")
