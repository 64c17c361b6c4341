# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins of an endpoint have made on the host: reservations, iptables rules and chains, IFB links.

Rules belong to an endpoint if their comment has its container ID, if their chain's name has its hash, or if they are in
a chain of the plugin firewall and have one of its addresses. Rules of nftables are not examined.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cni_bridge_state import EndpointId, EndpointRecord
from cnm_bridge.core.planning.saved_rules import SavedRule
from cnm_bridge.driver.recovery.artifacts import (
    HostRule,
    chain_names,
    data_directories,
    find_reservations,
    ifb_name,
    read_rules,
)

_BY_ADDRESS: Final = frozenset({"CNI-FORWARD", "CNI-ADMIN", "CNI-ISOLATION"})

"""The chains of `firewall`, whose rules have addresses and no container ID."""

_BUILT_IN: Final = ("PREROUTING", "OUTPUT", "POSTROUTING")

_SHARED: Final = " -j CNI-HOSTPORT-"

"""What leads to the chains of `portmap` that all endpoints share."""

_ID: Final = re.compile(r"[0-9a-f]{16,}")

"""A container ID of ours in a rule's comment."""

_HOST: Final = re.compile(r" (\S+)/(?:32|128)(?= |$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedArtifacts:
    """What an endpoint's plugins have made on the host, each as a text that lets an operator find it.

    Attributes:
        reservations: Paths of host-local's files.
        rules: The commands that would create the rules and chains.
        links: Names of IFB links.
        entries: The rules that lead to chains that all endpoints share, such as `-A PREROUTING … -j CNI-HOSTPORT-DNAT`.
    """

    reservations: tuple[str, ...]
    rules: tuple[str, ...]
    links: tuple[str, ...]
    entries: tuple[str, ...] = ()


class HostArtifacts:
    """The artifacts of all plugins on the host, read once and then looked up by endpoint.

    Checking thousands of endpoints would otherwise print and parse all rules thousands of times.

    Attributes:
        began_s: When reading them began, by the monotonic clock.
    """

    def __init__(self, records: Iterable[EndpointRecord], rules: Iterable[HostRule], began_s: float) -> None:
        self.began_s = began_s
        self._records: Mapping[EndpointId, EndpointRecord] = {record.id: record for record in records}
        self._rules: dict[str, list[str]] = {}
        self._reservations: dict[tuple[Path, str], Mapping[str, Sequence[str]]] = {}
        for rule in rules:
            for key in _keys(rule.saved):
                self._rules.setdefault(key, []).append(rule.what)

    @classmethod
    async def read(cls, records: Iterable[EndpointRecord]) -> Self:
        """Read the rules; what cannot be read counts as not existing.

        Args:
            records: The records of all endpoints; see `is_current`.
        """
        began_s = time.monotonic()
        rules = await read_rules()
        return await asyncio.to_thread(cls, records, rules, began_s)

    def is_current(self, record: EndpointRecord) -> bool:
        """Return whether an endpoint's record is still the one from before the rules were read.

        If it is not, plugins may have run for it since.
        """
        return self._records.get(record.id) is record

    async def find(self, record: EndpointRecord) -> OwnedArtifacts:
        """Return the artifacts of one endpoint."""
        return await asyncio.to_thread(self._find, record)

    def _find(self, record: EndpointRecord) -> OwnedArtifacts:
        network, container_id = record.attachment.network, record.attachment.id
        directories = sorted(data_directories([record.attachment.configuration]))
        reservations = (
            file
            for directory in directories
            for file in self._reservations_in(directory, network).get(container_id, ())
        )
        keys = (container_id, *sorted(chain_names(network, container_id)), *record.addresses)
        rules = dict.fromkeys(rule for key in keys for rule in self._rules.get(key, ()))
        link = ifb_name(network, container_id)
        return OwnedArtifacts(
            reservations=tuple(reservations),
            rules=tuple(rules),
            entries=tuple(rule for chain in _BUILT_IN for rule in self._rules.get(chain, ()) if _SHARED in rule),
            links=(link,) if Path("/sys/class/net", link).exists() else (),
        )

    def _reservations_in(self, directory: Path, network: str) -> Mapping[str, Sequence[str]]:
        """Return host-local's files of a network by container ID."""
        found = self._reservations.get((directory, network))
        if found is None:
            by_container: dict[str, list[str]] = {}
            for artifact in find_reservations(directory, network).owned:
                by_container.setdefault(artifact.container_id, []).append(artifact.what)
            found = self._reservations[directory, network] = by_container
        return found


def _keys(rule: SavedRule) -> frozenset[str]:
    """Return what a rule is found by: its chain, the container IDs in it, and addresses in chains of `firewall`."""
    addresses = _HOST.findall(rule.text) if rule.chain in _BY_ADDRESS else ()
    return frozenset((rule.chain, *_ID.findall(rule.text), *addresses))
