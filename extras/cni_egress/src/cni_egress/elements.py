# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What names allow: for some time, an address that a name has is open to the container that asked for it.

All containers share two sets for each family of addresses, whose elements expire: one of (source, destination,
protocol, port), and for each range of ports that a policy has one of (source, destination). A set for each container
would take ten times as much memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from cni_egress.nftables import Change, Element, Family, Nftables, Verb, key_address, key_service
from cni_egress.policy import PortRange, Protocol
from cni_egress.records import IpAddress, Record, Records

__all__ = ["Elements", "Opened", "set_of"]

_BATCH: Final = 10_000
"""How many elements are deleted at once."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An address that is open to a container.

    Attributes:
        source: The container's address.
        destination: The address.
        ports: What is open at it.
        seconds: For how long, in seconds.
        key: The key of the element.
    """

    source: IpAddress
    destination: IpAddress
    ports: PortRange
    seconds: float
    key: bytes


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

    def opened(self, ports: Iterable[PortRange], source: IpAddress | None = None) -> Iterator[Opened]:
        """Yield what names have opened.

        Args:
            ports: What the names of policies allow (`Policy.all_ports`).
            source: Only what is open to this address; None: to any.

        Raises:
            NetlinkError: The kernel has refused to answer.
        """
        for version in (4, 6) if source is None else (source.version,):
            for _, found in self._opened(ports, version, source):
                yield from found

    def forget(
        self,
        source: IpAddress,
        ports: Iterable[PortRange],
        stays: Callable[[IpAddress, PortRange], bool] = lambda *_: False,
    ) -> None:
        """Close what names have opened to an address.

        Args:
            source: The container's address.
            ports: What the names of its policy allow (`Policy.all_ports`).
            stays: Says what stays open, by the destination and its ports.

        Raises:
            NetlinkError: The kernel has refused.
        """
        for name, opened in self._opened(ports, source.version, source):
            keys = [one.key for one in opened if not stays(one.destination, one.ports)]
            for begin in range(0, len(keys), _BATCH):
                found = tuple(map(Element, keys[begin : begin + _BATCH]))
                # One may expire just now, and a deletion of what is missing fails.
                self._nftables.commit(Change(verb, Family.INET, name, found) for verb in (Verb.ADD, Verb.DELETE))

    def _opened(
        self, ports: Iterable[PortRange], version: int, source: IpAddress | None
    ) -> Iterator[tuple[str, list[Opened]]]:
        """Yield the name of each set, and what it has."""
        names = f"names{version}"
        sets: dict[str, PortRange | None] = {**{set_of(one, version): one for one in ports}, names: None}
        size = 4 if version == 4 else 16  # noqa: PLR2004
        for name, range_ in sets.items():
            found = []
            for one in self._nftables.elements(Family.INET, name, b"" if source is None else key_address(source)):
                first, second, service = one.key[:size], one.key[size : 2 * size], one.key[2 * size :]
                port = int.from_bytes(service[4:6], "big")
                allowed = range_ or PortRange(Protocol(service[0]), port, port)
                found.append(Opened(ip_address(first), ip_address(second), allowed, one.timeout_ms / 1000, one.key))
            yield name, found
