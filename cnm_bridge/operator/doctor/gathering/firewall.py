# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads facts about the packet filter. Nothing here loads a kernel module: the older backend is only looked for."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, find_object, find_str, get_objects, parse_json
from cnm_bridge.operator.doctor.facts import FirewallFacts
from cnm_bridge.operator.doctor.gathering.commands import read_lines

_LEGACY: Final = Path("/proc/net/ip_tables_names")
_FIREWALLD: Final = "firewalld"
_TRUSTED: Final = ("firewall-cmd", "--zone=trusted", "--list-sources")
_ACCEPTING: Final = frozenset({"accept", "goto", "jump", "queue", "vmap"})
_BY_DOCKER: Final = "docker-bridges"


async def gather_firewall() -> FirewallFacts:
    """Return facts about iptables and nftables in the host's network namespace."""
    version = await read_lines("iptables", "--version")
    listed = _parse_ruleset(await read_lines("nft", "-j", "list", "ruleset") or ())
    chains = tuple(_base_chains(listed))
    accepting = frozenset(_accepting_chains(listed))
    has_firewalld = any(find_str(chain, "table") == _FIREWALLD for chain in chains)
    return FirewallFacts(
        iptables=version[0] if version else None,
        rules=await read_lines("iptables-save", "-t", "filter"),
        rules_ipv6=await read_lines("ip6tables-save", "-t", "filter"),
        nat=await read_lines("iptables-save", "-t", "nat"),
        nat_ipv6=await read_lines("ip6tables-save", "-t", "nat"),
        legacy_tables=_legacy_tables(),
        has_nft=shutil.which("nft") is not None,
        dropping_chains=tuple(
            name
            for chain in chains
            if find_str(chain, "policy") == "drop"
            and not _is_judged_elsewhere(chain)
            and (name := _name(chain, "name")) not in accepting
        ),
        has_firewalld=has_firewalld,
        trusted=tuple(" ".join(await read_lines(*_TRUSTED) or ()).split()) if has_firewalld else (),
    )


def _parse_ruleset(lines: Sequence[str]) -> Sequence[JsonObject]:
    """Return the chains, rules and other objects that `nft -j list ruleset` prints."""
    try:
        return get_objects(as_object(parse_json("\n".join(lines).encode()), "ruleset"), "nftables")
    except JsonError:  # no nft, or a version without JSON
        return ()


def _base_chains(listed: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Yield the chains at the forward hook."""
    for item in listed:
        chain = find_object(item, "chain")
        if chain is not None and find_str(chain, "hook") == "forward":
            yield chain


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


def _legacy_tables() -> tuple[str, ...]:
    try:
        return tuple(_LEGACY.read_text("utf-8").split())
    except OSError:  # the module of the older backend is not loaded
        return ()
