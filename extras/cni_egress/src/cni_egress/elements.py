# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What names allow: for some time, an address that a name has is open to the container that asked for it.

All containers share two sets for each family of addresses, whose elements expire: one of (source, destination,
protocol, port), and for each range of ports that a policy has one of (source, destination). A set for each container
would take ten times as much memory.
"""

from collections.abc import Collection
from typing import Final

from cni_egress.nftables import Change, Element, Family, Nftables, Verb, key_address, key_service
from cni_egress.policy import PortRange, Protocol
from cni_egress.records import IpAddress, Record, Records

__all__ = ["Elements", "set_of"]

_BATCH: Final = 10_000
"""How many elements are deleted at once."""


def set_of(ports: PortRange, version: int) -> str:
    """Return the name of the set that has the addresses at which these ports are open, for IPv4 or IPv6."""
    if ports.protocol is Protocol.ANY:
        return f"any-{version}"
    if ports.first == ports.last:
        return f"names{version}"
    return f"{ports.protocol.name.lower()}-{ports.first}-{ports.last}-{version}"


class Elements:
    """Opens addresses to containers.

    Args:
        nftables: The tables.
        records: The records, which say whether a container still exists.
    """

    def __init__(self, nftables: Nftables, records: Records) -> None:
        self._nftables = nftables
        self._records = records

    def allow(
        self, record: Record, destinations: Collection[IpAddress], ports: Collection[PortRange], timeout_s: float
    ) -> None:
        """Open ports at destinations to a container, and return when the kernel lets its packets through.

        What is open already stays open for the new time. Of the container's addresses, those of the destination's
        family are its sources.

        Args:
            record: The container, as `Records.by_source` has returned it.
            destinations: The addresses of a name.
            ports: What its policy allows at them (`Policy.ports_of`).
            timeout_s: How long they stay open for new connections, in seconds.

        Raises:
            RecordGone: The container has been deleted meanwhile, or has another policy.
            NetlinkError: The kernel has refused. ENOENT: tables are missing, see `Enforcement.repair`.
        """
        timeout_ms = max(int(timeout_s * 1000), 1)
        elements: dict[str, list[Element]] = {}
        for source in record.addresses:
            for destination in destinations:
                if destination.version != source.version:
                    continue
                pair = key_address(source) + key_address(destination)
                for one in ports:
                    name = set_of(one, source.version)
                    is_port = one.protocol is not Protocol.ANY and one.first == one.last
                    key = pair + key_service(one.protocol, one.first) if is_port else pair
                    elements.setdefault(name, []).append(Element(key, timeout_ms=timeout_ms))
        # Only Linux 6.12 and newer give an element that exists a new time: elsewhere it is deleted and added again.
        # Adding it first makes the deletion succeed in any case.
        changes = [
            Change(verb, Family.INET, name, tuple(found))
            for name, found in elements.items()
            for verb in (Verb.ADD, Verb.DELETE, Verb.ADD)
        ]
        with self._records.held(record):
            self._nftables.commit(changes)

    def forget(self, source: IpAddress, ports: Collection[PortRange]) -> None:
        """Close everything that names have opened to an address.

        Args:
            source: The container's address.
            ports: What the names of its policy allow (`Policy.all_ports`).

        Raises:
            NetlinkError: The kernel has refused.
        """
        for name in {set_of(one, source.version) for one in ports} | {f"names{source.version}"}:
            keys = self._nftables.keys(Family.INET, name, key_address(source))
            for begin in range(0, len(keys), _BATCH):
                found = tuple(map(Element, keys[begin : begin + _BATCH]))
                # One may expire just now, and a deletion of what is missing fails.
                self._nftables.commit(Change(verb, Family.INET, name, found) for verb in (Verb.ADD, Verb.DELETE))
