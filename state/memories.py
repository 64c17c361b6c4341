# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the last container with a key (`cni.sticky`) had, stored under `memory/<configuration>/<key>`.

Nothing is reserved: it is what the next container with the key asks the plugins for. It is written together with the
record of the endpoint that has the addresses. The newest `LIMIT` keys are remembered.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from cni_bridge_state.db import Database
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.records import EndpointRecord, MemoryId, MemoryRecord
from cni_bridge_state.table import Table

LIMIT: Final = 4096


class Memories:
    """The memories of a `Store`."""

    def __init__(self, db: Database) -> None:
        self._memories = Table(db, "memory", MemoryRecord)

    def load(self) -> Iterator[RecordDamaged]:
        """Parse the memories in the database; yield what is damaged."""
        return self._memories.load()

    def all(self) -> tuple[MemoryRecord, ...]:
        """Return all memories, by ID."""
        return self._memories.all()

    def find(self, configuration: str, key: str) -> MemoryRecord | None:
        """Return what the last container with a key had on a list, None if there was none."""
        return self._memories.find(memory_id(configuration, key))

    def next_of(self, before: EndpointRecord | None, record: EndpointRecord) -> MemoryRecord | None:
        """Return what to remember when an endpoint's record is replaced; None if it gets no other addresses or MAC."""
        sticky = record.attachment.sticky
        is_same = before is not None and before.phase.is_attached and _having(before) == _having(record)
        if sticky is None or not record.phase.is_attached or not record.addresses or is_same:
            return None
        return MemoryRecord(
            id=memory_id(record.attachment.network, sticky.key),
            addresses=record.addresses,
            mac=record.mac,
            used_at=record.created_at or 0,
        )

    def changes(self, record: MemoryRecord | None) -> Mapping[str, bytes | None]:
        """Return the database's changes that store a memory, and remove the oldest one if there are too many."""
        if record is None:
            return {}
        oldest = self._superseded_by(record)
        return {**self._memories.changes(record), **({} if oldest is None else self._memories.removal(oldest))}

    def keep(self, record: MemoryRecord) -> None:
        """Remember what has been stored."""
        oldest = self._superseded_by(record)
        if oldest is not None:
            self._memories.forget(oldest)
        self._memories.keep(record)

    def _superseded_by(self, record: MemoryRecord) -> MemoryId | None:
        """Return the oldest memory if there is no room for another one."""
        if self._memories.find(record.id) is not None or len(self._memories) < LIMIT:
            return None
        return min(self._memories.all(), key=lambda memory: (memory.used_at, memory.id)).id


def memory_id(configuration: str, key: str) -> MemoryId:
    """Return the ID of the memory of a key on a network configuration list."""
    return MemoryId(f"{configuration}/{key}")


def _having(record: EndpointRecord) -> tuple[object, ...]:
    return record.addresses, record.mac
