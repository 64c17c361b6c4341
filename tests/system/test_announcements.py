# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container that comes back with its address is reached by a second host at once, although that knew another MAC."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from cni_bridge_spec import get_str
from cni_bridge_state import AttachMode
from tests.lab import Engine, Lab, LabError, wait_until
from tests.system.scene import Scene, Subnet, bridge

STALE: Final = "02:00:00:00:00:99"
LIMIT_S: Final = 3.0
"""Much shorter than the 20 to 45 seconds after which a neighbour asks again by itself."""


@dataclass(frozen=True, slots=True)
class SecondHost:
    """Another host on the bridge of a network."""

    lab: Lab

    def learn_stale(self, *addresses: str) -> None:
        """Let it know addresses of the network with another MAC, as if it had just exchanged packets."""
        for address in addresses:
            self._ip("neighbour", "replace", address, "lladdr", STALE, "dev", "eth0", "nud", "reachable")

    def wait_known(self, mac: str, *addresses: str) -> None:
        """Wait until it knows addresses with a MAC.

        Raises:
            LabError: It does not within the limit.
        """
        for address in addresses:
            wait_until(partial(self._knows, mac, address), f"{mac} of {address}", LIMIT_S)

    def _knows(self, mac: str, address: str) -> bool:
        (entry,) = json.loads(self._ip("-json", "neighbour", "show", address, "dev", "eth0"))
        return get_str(entry, "lladdr") == mac

    def _ip(self, *command: str) -> str:
        return self.lab.run("ip", "netns", "exec", "second", "ip", *command).stdout


@contextmanager
def second_host(lab: Lab, subnet: Subnet) -> Iterator[SecondHost]:
    """Connect a second host to the bridge of a network, which the plugins then find already made."""
    there = ("ip", "netns", "exec", "second", "ip")
    lab.run("ip", "netns", "add", "second")
    try:
        lab.run("ip", "link", "add", subnet.bridge, "up", "type", "bridge")
        lab.run(
            "ip", "link", "add", "wire0", "master", subnet.bridge, "type", "veth", "peer", "eth0", "netns", "second"
        )
        lab.run("ip", "link", "set", "wire0", "up")
        lab.run(*there, "address", "add", subnet.ipv4.replace(".0/", ".200/"), "dev", "eth0")
        lab.run(*there, "address", "add", subnet.ipv6.replace("::/", "::200/"), "dev", "eth0", "nodad")
        lab.run(*there, "link", "set", "eth0", "up")
        yield SecondHost(lab)
    finally:
        lab.run("ip", "netns", "del", "second")


@pytest.mark.smoke
@pytest.mark.parametrize("mode", [AttachMode.MOVE, AttachMode.HYBRID, AttachMode.DIRECT])
@pytest.mark.representatives("move", "hybrid")
def test_a_second_host_learns_the_mac(scene: Scene, engine: Engine, mode: AttachMode) -> None:
    """It learns that of the IPv4 and the IPv6 address after a start and after a restart, in each mode."""
    if mode is not AttachMode.MOVE and engine.version < (28,):
        pytest.skip("before Engine 28 the sandbox does not exist at Join")
    subnet = scene.subnet()
    addresses = (subnet.ipv4.replace("0/24", "9"), subnet.ipv6.replace("::/64", "::9"))
    options = ("-o", f"cni.ips={','.join(addresses)}")
    network = scene.network(scene.configure(bridge(subnet, ipv6=True)), *options, mode=mode)
    with second_host(scene.lab, subnet) as second:
        container = scene.lab.container(scene.create(network))
        for command in (("start",), ("restart", "--time=0")):
            second.learn_stale(*addresses)
            scene.lab.docker(*command, container.name)
            second.wait_known(container.link().mac, *addresses)


@pytest.mark.long
def test_a_network_without_announcements(scene: Scene) -> None:
    """Docker's option says how many there are, on engines too that do not know it."""
    subnet = scene.subnet()
    address = subnet.ipv4.replace("0/24", "9")
    options = ("-o", f"cni.ips={address}", "-o", "com.docker.network.advertise_addr_nmsgs=0")
    network = scene.network(scene.configure(bridge(subnet)), *options)
    with second_host(scene.lab, subnet) as second:
        container = scene.run(network)
        second.learn_stale(address)
        scene.lab.docker("restart", "--time=0", container.name)
        with pytest.raises(LabError):
            second.wait_known(container.link().mac, address)
