# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the packet filter lets the containers' packets pass."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, find_object, find_str, get_objects, parse_json
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.plugins import bridges, forwarding_links, has_plugin, packet_filters
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts, Finding, FirewallFacts, error, warning
from cnm_bridge.operator.doctor.iptables_rules import FilterTable, Packet
from cnm_bridge.operator.host import read_lines

_FIREWALLD: Final = "firewalld"
_ACCEPTING: Final = frozenset({"accept", "goto", "jump", "queue", "vmap"})
_BY_DOCKER: Final = "docker-bridges"
_IPV4: Final = 4
_FAMILIES: Final = {_IPV4: "iptables", 6: "ip6tables"}
_PACKAGES: Final = {"iptables": "iptables", "nft": "nftables"}


async def gather_firewall() -> FirewallFacts:
    """Return facts about iptables and nftables in the host's network namespace."""
    version = await read_lines("iptables", "--version")
    listed: Sequence[JsonObject] = ()
    with suppress(JsonError):  # no nft, or a version without JSON
        printed = "\n".join(await read_lines("nft", "-j", "list", "ruleset") or ())
        listed = get_objects(as_object(parse_json(printed.encode()), "ruleset"), "nftables")
    accepting = frozenset(_accepting_chains(listed))
    return FirewallFacts(
        iptables=version[0] if version else None,
        rules=await read_lines("iptables-save", "-t", "filter"),
        rules_ipv6=await read_lines("ip6tables-save", "-t", "filter"),
        has_nft=shutil.which("nft") is not None,
        dropping_chains=tuple(
            name
            for item in listed
            if (chain := find_object(item, "chain")) is not None
            and find_str(chain, "hook") == "forward"
            and find_str(chain, "policy") == "drop"
            and not _is_judged_elsewhere(chain)
            and (name := _name(chain, "name")) not in accepting
        ),
    )


def _accepting_chains(listed: Sequence[JsonObject]) -> Iterator[str]:
    """Yield the chains with a rule that may accept new connections, whichever these are."""
    for item in listed:
        rule = find_object(item, "rule") or {}
        parts = get_objects(rule, "expr") if "expr" in rule else ()
        matches = [one["left"] for part in parts if (one := find_object(part, "match")) is not None]
        is_of_state = any(isinstance(left, Mapping) and "ct" in left for left in matches)
        if not is_of_state and any(not _ACCEPTING.isdisjoint(part) for part in parts):
            yield _name(rule, "chain")


def _name(item: JsonObject, last: str) -> str:
    return " ".join(find_str(item, key) or "" for key in ("family", "table", last))


def _is_judged_elsewhere(chain: JsonObject) -> bool:
    """Return whether a chain is iptables' own, which `iptables-save` shows, or belongs to firewalld or Docker."""
    table = find_str(chain, "table")
    is_of_iptables = find_str(chain, "family") in {"ip", "ip6"} and find_str(chain, "name") == "FORWARD"
    return is_of_iptables or table in {_FIREWALLD, _BY_DOCKER}


def check_firewall(facts: Facts) -> Iterator[Finding]:
    """Find missing commands, and chains that drop the packets of a network."""
    yield from _check_commands(facts)
    for configured in facts.networks:
        links = forwarding_links(configured.network)
        if links:
            yield from _check_forwarding(facts, configured, links[0])
        yield from _check_bridged(facts, configured)


def _check_commands(facts: Facts) -> Iterator[Finding]:
    existing = {"iptables"} if facts.firewall.iptables is not None else set()
    existing |= {"nft"} if facts.firewall.has_nft else set()
    for command, package in _PACKAGES.items():
        users = [
            configured.network.name for configured in facts.networks if command in packet_filters(configured.network)
        ]
        if users and command not in existing:
            yield error(
                "command-missing",
                f"command {command}",
                f"it is not installed, and plugins of {', '.join(users)} run it: their ADD fails",
                fix=f"apt-get install {package}",
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
            dropping = table.find_drop(Packet(enters=link, source=subnet), has_firewall=has_firewall)
            if not dropping:
                continue
            yield error(
                "forward-dropped",
                f"network {network.name}",
                f"{dropping} ({command}) drops packets from {subnet}: the containers do not reach what "
                "is behind other links of the host, such as the outside, and with br_netfilter not even each other",
                fix=_mend_forwarding(table, command, link, subnet),
                advice="" if has_firewall else _add_firewall(network),
            )
    yield from _check_native_chains(facts, network.name, tuple(subnets))


def _check_bridged(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Examine a bridge that is stretched over hosts: with br_netfilter, what it forwards passes iptables."""
    links = {name: facts.links.get(name) for name in bridges(configured.network)}
    stretched = [name for name, link in links.items() if link is not None and link.is_stretched]
    for subnet in dict.fromkeys(one.subnet for one in find_ranges(configured.network)) if stretched else ():
        command, bridge = _FAMILIES[subnet.version], stretched[0]
        lines = facts.firewall.rules if subnet.version == _IPV4 else facts.firewall.rules_ipv6
        if lines is None or facts.sysctls.get(f"net.bridge.bridge-nf-call-{command}") != "1":
            continue
        table = FilterTable(lines)
        dropping = table.find_drop(Packet(source=subnet, destination=subnet, enters=bridge, leaves=bridge))
        if dropping:
            yield warning(
                "bridged-dropped",
                f"network {configured.network.name}",
                f"{dropping} ({command}) drops what other hosts on bridge {bridge} send to its containers, "
                "because br_netfilter passes bridged packets to it: names resolve, and connections time out",
                fix=f"{command} -I {table.user_chain} -s {subnet} -d {subnet} -j ACCEPT",
            )


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


def _check_native_chains(facts: Facts, name: str, subnets: tuple[IPv4Network | IPv6Network, ...]) -> Iterator[Finding]:
    sources = [f"{'ip' if subnet.version == _IPV4 else 'ip6'} saddr {subnet}" for subnet in subnets]
    for chain in facts.firewall.dropping_chains:
        yield warning(
            "forward-dropped-by-nftables",
            f"network {name}",
            f"the nftables chain {chain} has the policy drop, and no rule that accepts new connections: what "
            "iptables or another table accepts is dropped there",
            fix=" && ".join(
                f"nft insert rule {chain} {source} accept && "
                f"nft insert rule {chain} {source.replace('saddr', 'daddr')} accept"
                for source in sources
            ),
            advice="" if sources else f"add rules to it that accept the addresses of {name}",
        )
