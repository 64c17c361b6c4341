# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether containers of other hosts reach those of this one, by address and by name."""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.dhcp import find_dhcp
from cnm_bridge.core.lists.plugin_needs import bridges, forwarding_links, is_masqueraded
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts
from cnm_bridge.operator.doctor.finding import Finding, error, note, warning
from cnm_bridge.operator.doctor.iptables_rules import FilterTable, Packet, Verdict

_COMMANDS: Final = {4: "iptables", 6: "ip6tables"}
_FEW: Final = 3

_Subnet = IPv4Network | IPv6Network


def check_other_hosts(facts: Facts) -> Iterator[Finding]:
    """Find networks that a packet filter splits, and networks of a swarm without names."""
    for configured in facts.networks:
        yield from _check_bridged(facts, configured)
        yield from _check_routed(facts, configured)
    yield from _check_names(facts)
    for name in facts.engine.unallocated:
        yield error(
            "network-unallocated",
            f"network {name}",
            "the swarm has given it no subnet, so its tasks stay New. The usual reason is a subnet that "
            "overlaps one of another network of the swarm",
            advice=f"docker network rm {name}, and make it with a free subnet; the leader's dockerd logs why "
            "(Failed allocation for network)",
        )


def _check_bridged(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Examine a bridge that is stretched over hosts: with br_netfilter, what it forwards passes iptables."""
    links = {name: facts.links.get(name) for name in bridges(configured.network)}
    stretched = [name for name, link in links.items() if link is not None and link.is_stretched]
    for subnet in _subnets(configured) if stretched else ():
        command, bridge = _COMMANDS[subnet.version], stretched[0]
        if facts.kernel.sysctls.get(f"net.bridge.bridge-nf-call-{command}") != "1":
            continue
        packet = Packet(source=subnet, destination=subnet, enters=bridge, leaves=bridge)
        verdict = _judge(facts, packet, subnet)
        if verdict is None or verdict.is_accepted:
            continue
        yield warning(
            "bridged-dropped",
            f"network {configured.network.name}",
            f"{verdict.where} ({command}) drops what other hosts on bridge {bridge} send to its containers, "
            "because br_netfilter passes bridged packets to it: names resolve, and connections time out",
            fix=_accept(facts, subnet, subnet),
        )


def _check_routed(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Examine a network to which the host forwards: the plugin `firewall` accepts no new connections to containers.

    Behind masquerading, no other host knows the containers' addresses. Half of all addresses are the default route of a
    VPN.
    """
    links = () if is_masqueraded(configured.network) else forwarding_links(configured.network)
    for subnet in _subnets(configured) if links else ():
        others = [
            route.destination
            for route in facts.routes
            if route.has_next_hop and route.destination.prefixlen > 1 and route.destination.version == subnet.version
        ]
        dropped = []
        for other in others:
            verdict = _judge(facts, Packet(source=other, destination=subnet, leaves=links[0]), subnet)
            if verdict is not None and not verdict.is_accepted:
                dropped.append((other, verdict))
        if dropped:
            few = [other for other, _ in dropped[:_FEW]]
            yield note(
                "routed-dropped",
                f"network {configured.network.name}",
                f"{dropped[0][1].where} ({_COMMANDS[subnet.version]}) drops new connections to its containers "
                f"that come by the host's routes, from {', '.join(map(str, few))}"
                + (f" and {len(dropped) - _FEW} more" if len(dropped) > _FEW else "")
                + "; the plugin firewall accepts only those that the containers begin",
                advice=f"if they are to be accepted: {' && '.join(_accept(facts, other, subnet) for other in few)}",
            )


def _check_names(facts: Facts) -> Iterator[Finding]:
    lists = {one.network.name: one.network for one in facts.networks}
    for network in facts.engine.networks:
        found = lists.get(network.configuration or "")
        if network.is_of_swarm and found is not None and find_dhcp(found) is not None:
            yield warning(
                "names-missing",
                f"network {network.name}",
                "its addresses come by DHCP, and Docker does not know them, so the names of its services do not "
                "resolve on any node",
                advice="give the lists of the nodes an IPAM plugin such as host-local",
            )


def _subnets(configured: ConfiguredNetwork) -> tuple[_Subnet, ...]:
    return tuple(dict.fromkeys(one.subnet for one in find_ranges(configured.network)))


def _judge(facts: Facts, packet: Packet, subnet: _Subnet) -> Verdict | None:
    """Return what happens to a packet, None if the rules of its family are not known."""
    lines = _rules(facts, subnet)
    return None if lines is None else FilterTable(lines).judge(packet)


def _accept(facts: Facts, source: _Subnet, destination: _Subnet) -> str:
    """Return the command for a rule that accepts packets."""
    chain = FilterTable(_rules(facts, source) or ()).user_chain
    return f"{_COMMANDS[source.version]} -I {chain} -s {source} -d {destination} -j ACCEPT"


def _rules(facts: Facts, subnet: _Subnet) -> Sequence[str] | None:
    return facts.firewall.rules if isinstance(subnet, IPv4Network) else facts.firewall.rules_ipv6
