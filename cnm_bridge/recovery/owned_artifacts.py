# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins of one endpoint have made on the host: reservations, iptables rules and chains, IFB links.

Rules belong to an endpoint if their comment has its container ID, if their chain's name has its hash, or if they are in
a chain of the plugin firewall and have one of its addresses. Rules of nftables are not examined.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import find_object, find_str, get_objects
from cni_bridge_state import EndpointRecord
from cnm_bridge.recovery.artifacts import chain_names, find_reservations, hashed_names, is_ifb_name, read_rules

__all__ = ["OwnedArtifacts", "find_owned"]

_RESERVATIONS: Final = Path("/var/lib/cni/networks")
"""host-local's data directory, unless its configuration has `dataDir`."""

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_BY_ADDRESS: Final = ("CNI-FORWARD", "CNI-ADMIN", "CNI-ISOLATION")
"""The chains of `firewall`, whose rules have addresses and no container ID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedArtifacts:
    """What an endpoint's plugins have made on the host, each as a text that lets an operator find it.

    Attributes:
        reservations: Paths of host-local's files.
        rules: The commands that would create the rules and chains.
        links: Names of IFB links.
    """

    reservations: tuple[str, ...]
    rules: tuple[str, ...]
    links: tuple[str, ...]


async def find_owned(record: EndpointRecord) -> OwnedArtifacts:
    """Return what exists now of an endpoint's artifacts. What cannot be read counts as not existing."""
    saved = [(command.removesuffix("-save"), await read_rules(command)) for command in _COMMANDS]
    return await asyncio.to_thread(_collect, record, saved)


def _collect(record: EndpointRecord, saved: Sequence[tuple[str, str]]) -> OwnedArtifacts:
    network, container_id = record.cni_network, record.attachment_id
    reservations = (
        artifact.what
        for directory in _data_directories(record)
        for artifact in find_reservations(directory, network).owned
        if artifact.container_id == container_id
    )
    chains = chain_names(network, container_id)
    rules = (
        f"{command} -t {table} {line}"
        for command, text in saved
        for table, line in _rules(text)
        if container_id in line or _chain(line) in chains or _is_of_address(line, record.addresses)
    )
    links = sorted(filter(is_ifb_name, hashed_names(network, container_id)))
    return OwnedArtifacts(
        reservations=tuple(reservations),
        rules=tuple(rules),
        links=tuple(name for name in links if Path("/sys/class/net", name).exists()),
    )


def _data_directories(record: EndpointRecord) -> frozenset[Path]:
    """Return the data directories of host-local in an endpoint's list, and the default."""
    plugins = get_objects(record.configuration, "plugins")
    found = (find_str(find_object(plugin, "ipam") or {}, "dataDir") for plugin in plugins)
    return frozenset((_RESERVATIONS, *(Path(directory) for directory in found if directory)))


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield table and rule for each rule in the output of iptables-save."""
    table = "?"
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-A "):
            yield table, line


def _chain(rule: str) -> str:
    return rule.split(maxsplit=2)[1]


def _is_of_address(rule: str, addresses: Sequence[str]) -> bool:
    words = rule.split()
    if words[1] not in _BY_ADDRESS:
        return False
    return any(f"{address}/{length}" in words for address in addresses for length in (32, 128))
