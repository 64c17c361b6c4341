# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads facts about the packet filter. Nothing here loads a kernel module: the older backend is only looked for."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, find_object, find_str, get_objects, parse_json
from cnm_bridge.operator.doctor.facts import FirewallFacts
from cnm_bridge.operator.doctor.gathering.commands import read_lines

_LEGACY: Final = Path("/proc/net/ip_tables_names")
_FIREWALLD: Final = "firewalld"
_TRUSTED: Final = ("firewall-cmd", "--zone=trusted", "--list-sources")
_BY_DOCKER: Final = "docker-bridges"


async def gather_firewall() -> FirewallFacts:
    """Return facts about iptables and nftables in the host's network namespace."""
    version = await read_lines("iptables", "--version")
    listed = await read_lines("nft", "-j", "list", "ruleset")
    chains = tuple(_base_chains(listed or ()))
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
            " ".join(find_str(chain, key) or "" for key in ("family", "table", "name"))
            for chain in chains
            if find_str(chain, "policy") == "drop" and not _is_judged_elsewhere(chain)
        ),
        has_firewalld=has_firewalld,
        trusted=tuple(" ".join(await read_lines(*_TRUSTED) or ()).split()) if has_firewalld else (),
    )


def _base_chains(lines: Sequence[str]) -> Iterator[JsonObject]:
    """Yield the chains at the forward hook in the output of `nft -j list ruleset`."""
    try:
        for item in get_objects(as_object(parse_json("\n".join(lines).encode()), "ruleset"), "nftables"):
            chain = find_object(item, "chain")
            if chain is not None and find_str(chain, "hook") == "forward":
                yield chain
    except JsonError:  # no nft, or a version without JSON
        return


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
