# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The pools and addresses of a `Store`, which Docker has requested from this driver as its IPAM driver.

| key            | value                  |
| -------------- | ---------------------- |
| `pool/<id>`    | an `AddressPoolRecord` |
| `address/<id>` | an `AddressRecord`     |

The ID of an address is CNI's container ID of its reservation: the address itself is not known before ADD.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from cni_bridge_state.address_records import AddressId, AddressPoolRecord, AddressRecord, PoolId
from cni_bridge_state.db import Database
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.phases import ADDRESS_TRANSITIONS, AddressPhase, refuse_step
from cni_bridge_state.table import Table

Address = IPv4Address | IPv6Address


class AddressStore:
    """Typed records of pools and addresses in a `Database`; a change is on disk when its method returns."""

    def __init__(self, db: Database) -> None:
        self.pools = Table(db, "pool", AddressPoolRecord)
        self._addresses = Table(db, "address", AddressRecord)
        self._by_address = self._addresses.index(
            lambda record: () if record.address is None else ((record.section, record.address.ip),)
        )
        self._by_pool = self._addresses.index(lambda record: (record.pool,))

    def load(self) -> Iterator[RecordDamaged]:
        """Parse the content of the database; yield what is damaged."""
        yield from self.pools.load()
        yield from self._addresses.load()

    @property
    def is_empty(self) -> bool:
        """Whether there are no addresses."""
        return not len(self._addresses)

    def reservations(self) -> tuple[AddressRecord, ...]:
        """Return the addresses for which an IPAM plugin may have a reservation."""
        return tuple(record for record in self.addresses() if record.reservation is not None)

    def addresses(self) -> tuple[AddressRecord, ...]:
        """Return all addresses, by ID."""
        return self._addresses.all()

    def find_address(self, record_id: AddressId) -> AddressRecord | None:
        """Return an address by the ID of its reservation, None if there is none."""
        return self._addresses.find(record_id)

    def find_holders(self, section: str, address: Address) -> tuple[AddressRecord, ...]:
        """Return the records that hold an address of a section: at most one, besides those of a shared gateway."""
        return self._by_address.find((section, address))

    def in_pool(self, pool_id: PoolId) -> tuple[AddressRecord, ...]:
        """Return the addresses of a pool, the oldest first."""
        return self._by_pool.find(pool_id)

    async def put_address(self, record: AddressRecord) -> None:
        """Store an address's next phase.

        Raises:
            WrongPhase: `ADDRESS_TRANSITIONS` does not lead from the stored phase to the record's.
        """
        self._check(record.id, record.phase)
        await self._addresses.put(record)

    async def remove_address(self, record_id: AddressId) -> None:
        """Remove an address's record, which must be in RELEASING (or `WrongPhase`): its DEL is done."""
        self._check(record_id, None)
        await self._addresses.remove(record_id)

    def _check(self, record_id: AddressId, phase: AddressPhase | None) -> None:
        stored = self._addresses.find(record_id)
        refuse_step(ADDRESS_TRANSITIONS, record_id, None if stored is None else stored.phase, phase, "address")
