# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the packet filter lets the containers' packets pass."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.planning.addresses.address_ranges import find_ranges
from cnm_bridge.core.planning.plugin_needs import forwarding_links, has_plugin, packet_filters
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts
from cnm_bridge.operator.doctor.finding import Finding, Severity
from cnm_bridge.operator.doctor.iptables_rules import FilterTable, Packet, includes

_IPV4: Final = 4
_FAMILIES: Final = {_IPV4: "iptables", 6: "ip6tables"}
_PACKAGES: Final = {"iptables": "iptables", "nft": "nftables"}


def check_firewall(facts: Facts) -> Iterator[Finding]:
    """Find missing commands, mixed backends, and chains that drop the packets of a network."""
    yield from _check_commands(facts)
    yield from _check_backends(facts)
    for configured in facts.networks:
        links = forwarding_links(configured.network)
        if links:
            yield from _check_forwarding(facts, configured, links[0])


def _check_commands(facts: Facts) -> Iterator[Finding]:
    existing = {"iptables"} if facts.firewall.iptables is not None else set()
    existing |= {"nft"} if facts.firewall.has_nft else set()
    for command, package in _PACKAGES.items():
        users = [one.network.name for one in facts.networks if command in packet_filters(one.network)]
        if users and command not in existing:
            yield Finding(
                severity=Severity.ERROR,
                code="command-missing",
                subject=f"command {command}",
                text=f"it is not installed, and plugins of {', '.join(users)} run it: their ADD fails",
                fix=f"apt-get install {package}",
            )


def _check_backends(facts: Facts) -> Iterator[Finding]:
    firewall = facts.firewall
    if firewall.iptables is not None and "nf_tables" in firewall.iptables and firewall.legacy_tables:
        yield Finding(
            severity=Severity.WARNING,
            code="backends-mixed",
            subject="firewall",
            text=f"iptables uses nf_tables, and the older backend has tables ({', '.join(firewall.legacy_tables)}): "
            "a packet must pass both, and `iptables-save` shows one of them",
            advice="iptables-legacy-save shows them; remove their rules and restart the host, or let everything use "
            "the older backend: update-alternatives --set iptables /usr/sbin/iptables-legacy",
        )


def _check_forwarding(facts: Facts, configured: ConfiguredNetwork, link: str) -> Iterator[Finding]:
    network = configured.network
    has_firewall = has_plugin(network, "firewall")
    subnets = dict.fromkeys(one.subnet for one in find_ranges(network))
    for version, command in _FAMILIES.items():
        lines = facts.firewall.rules if version == _IPV4 else facts.firewall.rules_ipv6
        chosen = [subnet for subnet in subnets if subnet.version == version]
        if lines is None or not chosen:
            continue
        table = FilterTable(lines)
        for subnet in chosen:
            verdict = table.judge(Packet(enters=link, source=subnet), has_firewall=has_firewall)
            if verdict.is_accepted:
                continue
            yield Finding(
                severity=Severity.ERROR,
                code="forward-dropped",
                subject=f"network {network.name}",
                text=f"{verdict.where} ({command}) drops packets from {subnet}: the containers do not reach what "
                "is behind other links of the host, such as the outside, and with br_netfilter not even each other",
                fix=_mend_forwarding(table, command, link, subnet),
                advice="" if has_firewall else _add_firewall(network),
            )
    yield from _check_native_chains(facts, configured, tuple(subnets), has_firewall=has_firewall)


def _mend_forwarding(table: FilterTable, command: str, link: str, subnet: IPv4Network | IPv6Network) -> str:
    """Return the command that lets packets through."""
    if any(chain.startswith("ufw") for chain in table.chains):
        return f"ufw route allow from {subnet} && ufw route allow to {subnet}"
    chain = table.user_chain
    inward, outward = (f"-i {link}", f"-o {link}") if link else (f"-s {subnet}", f"-d {subnet}")
    return f"{command} -I {chain} {inward} -j ACCEPT && {command} -I {chain} {outward} -j ACCEPT"


def _add_firewall(network: NetworkConfigurationList) -> str:
    return (
        f'add the plugin {{"type": "firewall"}} to the end of the list in {network.source or network.name}, and '
        "restart the containers of its networks, which keep the list that they were attached with; this survives a "
        "restart of the host"
    )


def _check_native_chains(
    facts: Facts, configured: ConfiguredNetwork, subnets: tuple[IPv4Network | IPv6Network, ...], *, has_firewall: bool
) -> Iterator[Finding]:
    name = configured.network.name
    sources = [f"{'ip' if subnet.version == _IPV4 else 'ip6'} saddr {subnet}" for subnet in subnets]
    for chain in facts.firewall.dropping_chains:
        yield Finding(
            severity=Severity.WARNING,
            code="forward-dropped-by-nftables",
            subject=f"network {name}",
            text=f"the nftables chain {chain} has the policy drop, and no rule that accepts new connections: what "
            "iptables or another table accepts is dropped there",
            fix=" && ".join(
                f"nft insert rule {chain} {source} accept && "
                f"nft insert rule {chain} {source.replace('saddr', 'daddr')} accept"
                for source in sources
            ),
            advice="" if sources else f"add rules to it that accept the addresses of {name}",
        )
    subnets = tuple(one for one in subnets if not any(includes(source, one) for source in facts.firewall.trusted))
    if facts.firewall.has_firewalld and not has_firewall and subnets:
        yield Finding(
            severity=Severity.WARNING,
            code="firewalld-zone",
            subject=f"network {name}",
            text="firewalld runs, and the list has no plugin `firewall`, which would put each container's address into "
            "the zone trusted: firewalld rejects their packets unless a zone accepts them",
            fix=" && ".join(
                f"firewall-cmd --zone=trusted --add-source={subnet} && "
                f"firewall-cmd --permanent --zone=trusted --add-source={subnet}"
                for subnet in subnets
            ),
            advice=_add_firewall(configured.network),
        )
