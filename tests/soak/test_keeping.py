# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The check after each round finds everything that a running container loses."""

import os

import pytest

from tests.lab import Lab, main_engine
from tests.soak.figures import Figures
from tests.soak.keeping import Keeping
from tests.soak.machine import Machine
from tests.soak.model import World
from tests.soak.operations import Kind, Operation

NETWORK, PORT = "n1", 20_001
OPERATIONS = (
    Operation(kind=Kind.CREATE_NETWORK, network=NETWORK, list="lan6"),
    Operation(kind=Kind.RUN, container="c1", network=NETWORK, port=PORT),
    Operation(kind=Kind.RUN, container="c2", network=NETWORK),
)
INSIDE = 'nsenter --target "$process" --net -- '
HARMS = {
    f"{INSIDE} ip rule del lookup default": "lost: 32767:",
    f"{INSIDE} ip link set eth0 mtu 1300": "lost: link eth0: UP mtu 1500",
    f"{INSIDE} sh -c 'echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_filter'": "has come: /proc/sys/net/ipv4/conf/eth0/arp_f",
    f"{INSIDE} ip route del default": "lost: unicast default via 10.82.2.1 dev eth0",
    f"{INSIDE} ip -6 addr flush dev eth0 scope global": "lost: address fd82:2::",
    'tc qdisc del dev "$veth" root': "lost: eth0: on the host: qdisc tbf",
    'iptables -t nat -D POSTROUTING "$(number POSTROUTING "$address/32")"': "lost: lan6: rule ip nat -A POSTROUTING",
    'iptables -t nat -D CNI-HOSTPORT-DNAT "$(number CNI-HOSTPORT-DNAT 20001)"': "lost: lan6: rule ip nat -A CNI-HOST",
    'iptables -D CNI-FORWARD -s "$address/32" -j ACCEPT': "lost: lan6: rule ip filter -A CNI-FORWARD -s",
    "ip addr del 10.82.2.1/24 dev cni-soak2": "no answer from 10.82.2.1",
    'ip link del "$(ip -o link show type ifb | cut -d: -f2 | head -n 1 | tr -d " ")"': "lost: lan6: device bwp",
    'ip link set "$veth" nomaster': "lost: eth0: on the host: veth, master cni-soak2",
    'rm "/var/lib/cni/networks/lan6/$address"': "lost: lan6: reserved addresses are ['fd82:2::",
}
"""What is done to a container, one after the other, and the reported difference."""

SCRIPT = r"""
set -e
end=$(nsenter --target "$process" --net ip -o link show dev eth0 | sed 's/.*eth0@if\([0-9]*\):.*/\1/')
veth=$(ip -o link show | sed -n "s/^$end: \([^@:]*\).*/\1/p")
number() { iptables -t nat -S "$1" | grep -n -- "$2" | head -n 1 | { IFS=: read -r line _; echo $((line - 1)); }; }
"""


@pytest.mark.long
def test_losses_are_found() -> None:
    """Each loss is reported once it has happened, with its round and its container; before there is no difference."""
    if os.geteuid() != 0:
        pytest.skip("a lab, which makes namespaces and mounts, needs root")
    with Lab(engine=main_engine()) as lab:
        machine = Machine(lab, ["lan6"])
        world = World()
        for operation in OPERATIONS:
            assert machine.docker.perform(operation).is_done
            world = world.after(operation)
        docker = machine.docker.look()
        figures = Figures()
        keeping = Keeping(machine, figures, print)
        for round_ in ("round 1", "round 2"):
            keeping.check(world, docker, (), round_)
        assert not figures.differences
        found = docker.containers["c1"]
        (address,) = (address for address in found.addresses if ":" not in address)
        for harm, words in HARMS.items():
            assert not any(words in line for line in figures.differences), harm
            lab.run("sh", "-c", SCRIPT + harm, env={"address": address, "process": str(found.process)})
            keeping.check(world, docker, (), "round 3")
            reported = figures.differences
            assert any(line.startswith("after round 3: container c1") and words in line for line in reported), reported
