# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What iptables certainly does with a packet of a network."""

from ipaddress import ip_network

import pytest

from cnm_bridge.operator.doctor.iptables_rules import FilterTable, Packet

SUBNET = ip_network("10.22.0.0/16")
DOCKER = """
:FORWARD DROP [0:0]
:DOCKER-USER - [0:0]
:DOCKER-FORWARD - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
"""
"""Rules as Docker Engine 28 makes them, shortened."""


def judge(rules: str, *, link: str = "cni-blue", has_firewall: bool = False) -> str:
    """Return what drops the packets of a bridge."""
    table = FilterTable(rules.strip().splitlines())
    return table.find_drop(Packet(enters=link, source=SUBNET), has_firewall=has_firewall)


def test_a_table_without_rules_accepts() -> None:
    """Iptables was never used."""
    assert judge("") == ""


def test_the_policy_of_docker_drops_what_docker_does_not_know() -> None:
    """Docker accepts packets of its own bridges only."""
    assert judge(DOCKER) == "the policy DROP of chain FORWARD"
    assert judge(DOCKER, link="docker0") == ""


@pytest.mark.parametrize(
    "rule",
    [
        "-i cni-blue -j ACCEPT",
        "-i cni-+ -j ACCEPT",
        "-s 10.0.0.0/8 -j ACCEPT",
        '! -i eth0 -m comment --comment "for CNI" -j ACCEPT',
        "-j ACCEPT",
    ],
)
def test_a_rule_that_matches_all_packets_of_the_network_decides(rule: str) -> None:
    """It may be in a chain that FORWARD jumps to."""
    assert judge(DOCKER + f"-A DOCKER-USER {rule}\n") == ""


@pytest.mark.parametrize(
    "rule",
    [
        "-i eth0 -j ACCEPT",
        "-s 10.22.3.0/24 -j ACCEPT",
        "-s fd00::/8 -j ACCEPT",
        "-p tcp -j ACCEPT",
        "-i cni-blue -m conntrack --ctstate DNAT -j ACCEPT",
        "! -i cni-blue -j ACCEPT",
        "-o eth0 -j ACCEPT",
        "-j LOG --log-prefix ACCEPT",
    ],
)
def test_a_rule_that_matches_some_packets_does_not(rule: str) -> None:
    """The policy still drops the others."""
    assert judge(DOCKER + f"-A DOCKER-USER {rule}\n") == "the policy DROP of chain FORWARD"


def test_return_ends_a_chain_only() -> None:
    """Docker's older engines end DOCKER-USER with such a rule."""
    rules = DOCKER + "-A DOCKER-USER -j RETURN\n-A DOCKER-USER -j DROP\n-A FORWARD -i cni-blue -j ACCEPT\n"
    assert judge(rules) == ""


def test_the_plugin_firewall_accepts() -> None:
    """Its chain, if it exists, or the one that its first ADD makes, which comes first."""
    assert judge(DOCKER, has_firewall=True) == ""
    assert judge(DOCKER + ":CNI-FORWARD - [0:0]\n-A FORWARD -j CNI-FORWARD\n", has_firewall=True) == ""


def test_a_rule_before_the_plugins_chain_wins() -> None:
    """Docker puts its own jump first again when it starts."""
    rules = DOCKER + ":CNI-FORWARD - [0:0]\n-A FORWARD -j CNI-FORWARD\n-A DOCKER-USER -j DROP\n"
    assert judge(rules, has_firewall=True) == "the rule `-A DOCKER-USER -j DROP`"


def test_chains_that_jump_to_each_other_end() -> None:
    """The kernel refuses them; a file may have them."""
    assert judge(":FORWARD DROP\n:A -\n:B -\n-A FORWARD -j A\n-A A -j B\n-A B -j A\n")
