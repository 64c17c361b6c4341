# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is settled when a container has several networks, loses one, or has no IPv6 by Docker's will."""

from functools import partial

import pytest

from spec import JsonObject
from tests.lab import Container, Engine
from tests.lab.waiting import wait_until
from tests.system.scene import PREV_RESULT, Scene, bridge


def write_handiwork(scene: Scene, commands: str, name: str = "handiwork") -> None:
    """Put a plugin on the host that runs commands in the namespace, at the end of a list."""
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
    """Tell whether a command in the container's network says something."""
    return words in container.in_network(*command).stdout


@pytest.mark.parametrize("running", [True, False])
def test_source_routing_on_two_networks(scene: Scene, *, running: bool) -> None:
    """`sbr` takes the first free table, which in each staging namespace is the same: in the container they are two."""
    subnets = scene.subnet(), scene.subnet()
    networks = [scene.network(scene.configure([*bridge(subnet), {"type": "sbr"}])) for subnet in subnets]
    name = scene.run(networks[0]).name if running else scene.create(networks[0])
    scene.lab.docker("network", "connect", networks[1], name)
    if not running:
        scene.lab.docker("start", name)  # both are settled at the same time
    container = scene.lab.container(name)
    gateways = {subnet.ipv4.removesuffix("0/24"): subnet.gateway for subnet in subnets}
    for link in container.links():
        (own,) = (address.ip for address in link.addresses)
        way = f"via {gateways[str(own).rpartition('.')[0] + '.']} dev {link.name}"
        command = ("ip", "route", "get", "192.0.2.9", "from", str(own))
        wait_until(partial(shows, container, *command, words=way), f"a way of its own for {own}")
    # settled again, as whenever something is disconnected, all stays as it is
    before = container.in_network("ip", "rule").stdout
    third, _ = scene.bridge_network()
    scene.lab.docker("network", "connect", third, container.name)
    scene.lab.docker("network", "disconnect", third, container.name)
    assert container.in_network("ip", "rule").stdout == before


def test_rules_go_with_their_network(scene: Scene) -> None:
    """They hang on no link: after `docker network disconnect` none is left, and a second connect makes them again."""
    subnet = scene.subnet()
    network = scene.network(scene.configure([*bridge(subnet), {"type": "sbr"}]))
    first, _ = scene.bridge_network()
    container = scene.run(first)
    before = container.in_network("ip", "rule").stdout
    for _ in range(2):
        scene.lab.docker("network", "connect", network, container.name)
        wait_until(lambda: container.in_network("ip", "rule").stdout != before, "a rule")
        scene.lab.docker("network", "disconnect", network, container.name)
        assert container.in_network("ip", "rule").stdout == before


def test_ipv6_of_a_link_without_a_global_address(scene: Scene) -> None:
    """Docker switches IPv6 off where it knows no address: what plugins made of IPv6 is there all the same."""
    subnet = scene.subnet()
    write_handiwork(
        scene,
        """
ip address add fe80::77/64 dev eth0 nodad
ip route add 10.6.0.0/16 via inet6 fe80::1 dev eth0
ip -6 route add fd99::/64 via fe80::1 dev eth0
""",
    )
    container = scene.run(scene.network(scene.configure([*bridge(subnet), {"type": "handiwork"}])))
    wait_until(lambda: shows(container, "ip", "-6", "address", words="fe80::77/64"), "a link-local address")
    wait_until(lambda: shows(container, "ip", "route", words="10.6.0.0/16 via inet6 fe80::1 dev eth0"), "a route")
    wait_until(lambda: shows(container, "ip", "-6", "route", words="fd99::/64 via fe80::1 dev eth0"), "a route")


def test_a_stated_setting_beats_dockers_own(scene: Scene, engine: Engine) -> None:
    """What `tuning` says holds also where it is the kernel's default and Docker has another.

    Before Engine 28 runc writes its settings when the sandbox is settled already, some time before the process starts.
    """
    if engine.version < (28,):
        pytest.skip("this engine's runtime sets it last")
    subnet = scene.subnet()
    tuning: JsonObject = {"type": "tuning", "sysctl": {"net.ipv4.ip_unprivileged_port_start": "1024"}}
    container = scene.run(scene.network(scene.configure([*bridge(subnet), tuning])))
    name = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
    assert container.in_network("cat", name).stdout.strip() == "1024"


def test_a_gateway_that_takes_over_keeps_its_routes_mtu(scene: Scene) -> None:
    """Docker makes its default route plainly, whenever it becomes the way out."""
    subnet = scene.subnet()
    write_handiwork(scene, f"ip route replace default via {subnet.gateway} dev eth0 mtu 1300")
    second = scene.network(scene.configure([*bridge(subnet), {"type": "handiwork"}]), name="zzz-second")
    first, _ = scene.bridge_network()
    container = scene.run(first)
    scene.lab.docker("network", "connect", second, container.name)
    for _ in range(2):
        scene.lab.docker("network", "disconnect", first, container.name)
        words = f"default via {subnet.gateway} dev eth1 mtu 1300"
        wait_until(partial(shows, container, "ip", "route", words=words), words)
        scene.lab.docker("network", "connect", first, container.name)
        assert "mtu 1300" not in container.in_network("ip", "route", "show", "default").stdout


def test_name_servers_are_not_lost_without_a_word(private_scene: Scene) -> None:
    """No driver can give them to Docker: the log says so, and names the configuration."""
    subnet = private_scene.subnet()
    main, *further = bridge(subnet)
    listed = private_scene.configure([{**main, "dns": {"nameservers": ["192.0.2.53"]}}, *further])
    container = private_scene.run(private_scene.network(listed))
    assert "192.0.2.53" not in container.exec("cat", "/etc/resolv.conf")
    (daemon,) = (process for process in private_scene.lab.processes if process.name == "daemon")
    said = [line for line in daemon.tail().splitlines() if "endpoint.dns_unused" in line]
    assert len(said) == 1
    assert listed in said[0]
    assert "192.0.2.53" in said[0]
