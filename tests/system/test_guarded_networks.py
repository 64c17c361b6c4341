# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`docker run` on a network whose list ends with `egress`: from the first instruction on, only what is allowed."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_objects
from tests.lab import Lab, wait_until
from tests.system.calls import ask_status
from tests.system.plugin_lists import defaults
from tests.system.scene import Scene, Subnet

OPEN: Final = ("198.51.100.17", "2001:db8:2::17")
CLOSED: Final = ("198.51.100.9", "2001:db8:1::9")
ALLOW: Final = ("198.51.100.16/28", "[2001:db8:2::/64]:443")
pytestmark = pytest.mark.timeout(400)  # each container needs a process of Python more than once
_BEACON: Final = Path(__file__).parents[1] / "egress" / "beacon.c"
_OUTSIDE: Final = f"""
ip netns add outside
ip link add door0 up type veth peer name door netns outside
ip address add 203.0.113.2/24 dev door0
ip address add 2001:db8:f::2/64 dev door0 nodad
ip route add default via 203.0.113.1
ip -6 route add default via 2001:db8:f::1
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip netns exec outside sh -euc '
    ip link set lo up
    ip link set door up
    ip address add 203.0.113.1/24 dev door
    ip address add 2001:db8:f::1/64 dev door nodad
    ip route add 10.80.0.0/16 via 203.0.113.2
    ip -6 route add fd80::/16 via 2001:db8:f::2
    for address in {OPEN[0]} {CLOSED[0]}; do ip address add $address/32 dev lo; done
    for address in {OPEN[1]} {CLOSED[1]}; do ip address add $address/128 dev lo nodad; done
    nft -f - <<END
table inet seen {{
  counter seen {{ }}
  chain in {{
    type filter hook prerouting priority -400;
    iifname != "door" return
    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} return
    counter name seen
  }}
}}
END'
iptables -P FORWARD ACCEPT
ip6tables -P FORWARD ACCEPT
"""
"""A namespace behind an uplink, which counts all that arrives; and nothing but the plugin refuses anything."""
_CLEANED: Final = """
iptables -P FORWARD DROP
ip6tables -P FORWARD DROP
ip netns delete outside
nft 'table inet cni-egress; table bridge cni-egress; delete table inet cni-egress; delete table bridge cni-egress'
for family in -4 -6; do while ip $family rule delete priority 40 2>/dev/null; do :; done; done
"""


class Guarded:
    """A guarded network on a lab, and an internet that counts.

    Args:
        scene: The scene.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.lab: Lab = scene.lab
        self.subnet: Subnet = scene.subnet()
        ipam: JsonObject = {
            "type": "host-local",
            "ranges": [[{"subnet": self.subnet.ipv4}], [{"subnet": self.subnet.ipv6}]],
            "routes": list(defaults(4, 6)),
        }
        main: JsonObject = {"type": "bridge", "bridge": self.subnet.bridge, "isGateway": True, "ipam": ipam}
        egress: JsonObject = {"type": "egress", "allow": list(ALLOW), "capabilities": {"egress": True}}
        self.network = scene.network(scene.configure([main, egress]))
        self.open_network = scene.network(scene.configure([{**main, "bridge": f"{self.subnet.bridge}o"}]))

    def seen(self) -> int:
        """How many packets have arrived outside."""
        listed = self.lab.run("ip", "netns", "exec", "outside", "nft", "list", "counter", "inet", "seen", "seen")
        words = listed.stdout.split()
        return int(words[words.index("packets") + 1])

    def beacon(self, network: str, milliseconds: int, *addresses: str) -> None:
        """Run a container with all capabilities whose only program sends from its first instruction on."""
        mounted = ("-v", "/run/beacon:/beacon:ro", "--cap-add", "ALL", "--network", network)
        self.lab.docker("run", "--rm", *mounted, "busybox", "/beacon", str(milliseconds), *addresses)


@pytest.fixture(name="guarded")
def make_guarded(private_scene: Scene) -> Iterator[Guarded]:
    """A guarded network."""
    lab = private_scene.lab
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is missing, which makes the program that sends from its first instruction on")
    beacon = lab.path("/run/beacon")
    subprocess.run([compiler, "-static", "-O1", "-o", beacon, _BEACON], check=True)
    lab.write("/opt/cni/bin/egress", f"#!/bin/sh\nexec {Path(sys.executable).with_name('egress')}\n", mode=0o755)
    private_scene.adopt_file("/opt/cni/bin/egress")
    lab.run("sh", "-euc", _OUTSIDE)
    try:
        yield Guarded(private_scene)
    finally:
        lab.docker("container", "prune", "--force")
        lab.run("sh", "-c", _CLEANED)


def test_not_one_packet_at_the_start(guarded: Guarded) -> None:
    """Three containers at once with all capabilities: none sends a packet outside; where it is allowed, they do."""
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: guarded.beacon(guarded.network, 300, *CLOSED), range(6)))
    assert guarded.seen() == 0
    guarded.beacon(guarded.network, 100, *OPEN)
    allowed = guarded.seen()
    assert allowed > 0


def test_what_is_refused_is_refused_at_once(guarded: Guarded) -> None:
    """A program gets an error, not a time-out; what is allowed goes on."""
    container = guarded.scene.run(guarded.network)
    begun = time.monotonic()
    for address in CLOSED:
        shown = container.exec("sh", "-c", f"nc -w 9 {address} 443 2>&1 || true")
        assert "refused" in shown.lower()
    assert time.monotonic() - begun < 8
    assert guarded.seen() == 0
    container.exec("sh", "-c", f"ping -c 1 -w 5 {OPEN[0]}")
    assert guarded.seen() > 0


def test_a_container_with_more(guarded: Guarded) -> None:
    """The list declares the capability, so a container may bring entries of its own; its neighbors do not have them."""
    more = f'"driver-opt=cni.capability.egress={{""allow"":[""{CLOSED[0]}""]}}"'  # a field of CSV
    neighbor = guarded.scene.run(guarded.network)
    container = guarded.scene.run(f"name={guarded.network},{more}")
    neighbor.exec("sh", "-c", f"! ping -c 1 -w 1 {CLOSED[0]}")
    assert guarded.seen() == 0
    container.exec("ping", "-c", "1", "-w", "5", CLOSED[0])


def test_kills_and_restarts(guarded: Guarded) -> None:
    """Neither a restart of the container, nor one of the daemons, nor removed tables let a packet out."""
    lab = guarded.lab
    lab.docker(
        "run", "-d", "--name", "restless", "--restart", "always", "--cap-add", "ALL", "-v", "/run/beacon:/beacon:ro",
        "--network", guarded.network, "busybox", "/beacon", "700", *CLOSED,
    )  # fmt: skip
    try:
        lab.docker("restart", "--time", "0", "restless")
        lab.restart_daemon(signal.SIGKILL)
        time.sleep(2)
        lab.run("nft", "flush", "ruleset")
        time.sleep(2)
        lab.restart_dockerd(signal.SIGKILL)
        time.sleep(2)
        assert guarded.seen() == 0
        assert int(lab.docker("inspect", "--format", "{{.RestartCount}}", "restless")) >= 1
    finally:
        lab.docker("rm", "--force", "restless")
        # What dockerd lost when it was killed is torn down after some seconds, and needs the plugin.
        wait_until(lambda: not get_objects(ask_status(lab), "endpoints"), "the end of the endpoints", 60)
