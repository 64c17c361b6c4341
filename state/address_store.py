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
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cni_bridge_state.address_records import (
    ADDRESS_TRANSITIONS,
    AddressId,
    AddressPhase,
    AddressPoolRecord,
    AddressRecord,
    PoolId,
)
from cni_bridge_state.codec import render_value
from cni_bridge_state.damaged_records import DamagedRecord, load_all
from cni_bridge_state.db import Database
from cni_bridge_state.errors import WrongPhase
from cni_bridge_state.index import Index

Address = IPv4Address | IPv6Address

POOLS: Final = "pool/"
ADDRESSES: Final = "address/"


class AddressStore:
    """Typed records of pools and addresses in a `Database`; a change is on disk when its method returns."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pools: dict[PoolId, AddressPoolRecord] = {}
        self._addresses: dict[AddressId, AddressRecord] = {}
        self._by_address = Index[AddressRecord](
            lambda record: () if record.address is None else ((record.section, record.address.ip),)
        )
        self._by_pool = Index[AddressRecord](lambda record: (record.pool,))

    def load(self) -> Iterator[DamagedRecord]:
        """Parse the content of the database; yield what is damaged."""
        self._pools.clear()
        for record_id in tuple(self._addresses):
            self._forget_address(record_id)
        yield from load_all(self._db, POOLS, AddressPoolRecord, self._keep_pool)
        yield from load_all(self._db, ADDRESSES, AddressRecord, self._keep_address)

    @property
    def is_empty(self) -> bool:
        """Whether there are no addresses."""
        return not self._addresses

    def reservations(self) -> tuple[AddressRecord, ...]:
        """Return the addresses for which an IPAM plugin may have a reservation."""
        return tuple(one for one in self.addresses() if one.reservation is not None)

    def find_reservation(self, container_id: str) -> AddressRecord | None:
        """Return the one of `reservations` with this ID, None if there is none."""
        address = self._addresses.get(AddressId(container_id))
        return None if address is None or address.reservation is None else address

    def pools(self) -> tuple[AddressPoolRecord, ...]:
        """Return all pools, by ID."""
        return tuple(self._pools[pool_id] for pool_id in sorted(self._pools))

    def find_pool(self, pool_id: PoolId) -> AddressPoolRecord | None:
        """Return a pool, None if there is none."""
        return self._pools.get(pool_id)

    async def put_pool(self, record: AddressPoolRecord) -> None:
        """Store a pool, in place of an earlier record."""
        await self._db.write({f"{POOLS}{record.id}": render_value(record)}, on_written=partial(self._keep_pool, record))

    async def remove_pool(self, pool_id: PoolId) -> None:
        """Remove the record of a pool, if there is one."""
        await self._db.write({f"{POOLS}{pool_id}": None}, on_written=lambda: self._forget_pool(pool_id))

    def addresses(self) -> tuple[AddressRecord, ...]:
        """Return all addresses, by ID."""
        return tuple(self._addresses[record_id] for record_id in sorted(self._addresses))

    def find_address(self, record_id: AddressId) -> AddressRecord | None:
        """Return an address by the ID of its reservation, None if there is none."""
        return self._addresses.get(record_id)

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
        kept = partial(self._keep_address, record)
        await self._db.write({f"{ADDRESSES}{record.id}": render_value(record)}, on_written=kept)

    async def remove_address(self, record_id: AddressId) -> None:
        """Remove an address's record, which must be in RELEASING: its DEL is done.

        Raises:
            WrongPhase: It is in another phase.
        """
        self._check(record_id, None)
        await self._db.write({f"{ADDRESSES}{record_id}": None}, on_written=lambda: self._forget_address(record_id))

    def _check(self, record_id: AddressId, wanted: AddressPhase | None) -> None:
        stored = self._addresses.get(record_id)
        phase = None if stored is None else stored.phase
        if wanted not in ADDRESS_TRANSITIONS[phase]:
            raise WrongPhase(record_id, phase, wanted, "address")

    def _keep_pool(self, record: AddressPoolRecord) -> None:
        self._pools[record.id] = record

    def _forget_pool(self, pool_id: PoolId) -> None:
        self._pools.pop(pool_id, None)

    def _keep_address(self, record: AddressRecord) -> None:
        self._forget_address(record.id)
        self._addresses[record.id] = record
        self._by_pool.add(record)
        self._by_address.add(record)

    def _forget_address(self, record_id: AddressId) -> None:
        record = self._addresses.pop(record_id, None)
        if record is not None:
            self._by_pool.discard(record)
            self._by_address.discard(record)
