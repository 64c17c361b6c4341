# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the doctor finds about containers of other hosts: whether they reach those of this one, also by name."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.doctor.facts import DockerNetwork, Facts
from cnm_bridge.operator.doctor.finding import Severity
from cnm_bridge.operator.host import HostLink, HostRoute
from tests.unit.cnm_bridge.operator.doctor.host import BRIDGE, FIREWALL, HEALTHY, codes, configured, only, with_network

DOCKER = (":FORWARD DROP [0:0]", ":DOCKER-USER - [0:0]", "-A FORWARD -j DOCKER-USER")
ACCEPTED = "-A DOCKER-USER -s 10.22.0.0/28 -d 10.22.0.0/28 -j ACCEPT"
L2: JsonObject = {**BRIDGE, "isGateway": False, "ipam": {"type": "host-local", "subnet": "10.22.0.0/28"}}


def stretched(*rules: str, filtered: str = "1") -> Facts:
    """Return a host whose bridge has a port to other hosts, without a gateway on it."""
    facts = with_network(L2)
    return replace(
        facts,
        links={"cni-blue": HostLink(mtu=1500, is_stretched=True)},
        firewall=replace(facts.firewall, rules=(*DOCKER, *rules)),
        kernel=replace(facts.kernel, sysctls={**facts.kernel.sysctls, "net.bridge.bridge-nf-call-iptables": filtered}),
    )


def test_a_stretched_bridge_whose_frames_are_dropped() -> None:
    """The finding has the command that accepts them."""
    finding = only(stretched())
    assert (finding.code, finding.severity) == ("bridged-dropped", Severity.WARNING)
    assert finding.fix == "iptables -I DOCKER-USER -s 10.22.0.0/28 -d 10.22.0.0/28 -j ACCEPT"
    assert "the policy DROP of chain FORWARD (iptables) drops what other hosts on bridge cni-blue send" in finding.text


@pytest.mark.parametrize(
    "facts",
    [
        stretched(ACCEPTED),
        stretched("-A DOCKER-USER -i cni-blue -o cni-blue -j ACCEPT"),
        stretched(filtered="0"),
        replace(stretched(), links={"br0": HostLink(mtu=1500, is_stretched=True)}),
    ],
    ids=["by subnet", "by bridge", "no br_netfilter", "not stretched"],
)
def test_a_bridge_whose_frames_pass(facts: Facts) -> None:
    """A rule accepts them, iptables does not see them, or they come from this host only."""
    assert codes(facts) == []


def routed(*routes: str, rules: Sequence[str] = ()) -> Facts:
    """Return a host with the plugin `firewall`, and routes to other hosts."""
    facts = with_network({**BRIDGE, "ipMasq": False}, FIREWALL)
    found = tuple(HostRoute(destination=ip_network(route), link="eth0", has_next_hop=True) for route in routes)
    firewall = replace(facts.firewall, rules=(*DOCKER, ":CNI-FORWARD - [0:0]", "-A FORWARD -j CNI-FORWARD", *rules))
    return replace(facts, routes=found, firewall=firewall)


def test_a_routed_network_that_accepts_no_new_connections() -> None:
    """It is a note: whether other hosts are to reach the containers is the operator's choice."""
    finding = only(routed("0.0.0.0/0", "10.22.1.0/28", "10.22.2.0/28"))
    assert (finding.code, finding.severity) == ("routed-dropped", Severity.NOTE)
    assert "from 10.22.1.0/28, 10.22.2.0/28;" in finding.text
    assert "iptables -I DOCKER-USER -s 10.22.1.0/28 -d 10.22.0.0/28 -j ACCEPT && iptables" in finding.advice


def test_a_routed_network_that_accepts_them() -> None:
    """A rule accepts them; the routes are the default one and those of a VPN; or the containers are masqueraded."""
    assert codes(routed("10.22.1.0/28", rules=["-A DOCKER-USER -s 10.22.0.0/16 -d 10.22.0.0/16 -j ACCEPT"])) == []
    assert codes(routed("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1")) == []
    masqueraded = with_network({**BRIDGE, "ipMasq": True}, FIREWALL).networks
    assert codes(replace(routed("10.22.1.0/28"), networks=masqueraded)) == []


def swarm(*, is_of_swarm: bool = True, ipam: str = "host-local") -> Facts:
    """Return a node with a network of a swarm."""
    network = DockerNetwork(name="lan", configuration="blue", is_of_swarm=is_of_swarm)
    listed = configured({"type": "macvlan", "ipam": {"type": ipam}})
    return replace(HEALTHY, networks=(listed,), engine=replace(HEALTHY.engine, networks=(network,)))


def test_a_network_of_a_swarm_without_names() -> None:
    """With DHCP Docker knows no address."""
    assert only(swarm(ipam="dhcp")).code == "names-missing"
    assert codes(swarm()) == codes(swarm(is_of_swarm=False, ipam="dhcp")) == []


def test_a_network_to_which_the_swarm_gives_no_subnet() -> None:
    """Docker says nothing about it; its tasks do not start."""
    finding = only(replace(HEALTHY, engine=replace(HEALTHY.engine, unallocated=("shared",))))
    assert (finding.code, finding.severity, finding.subject) == (
        "network-unallocated",
        Severity.ERROR,
        "network shared",
    )
    assert "its tasks stay New" in finding.text
