# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the last container with a key (`cni.sticky`) had, stored under `memory/<configuration>/<key>`.

Nothing is reserved: it is what the next container with the key asks the plugins for. It is written together with the
record of the endpoint that has the addresses. The newest `LIMIT` keys are remembered.
"""

from collections.abc import Iterator
from typing import Final

from cni_bridge_state.codec import render_value
from cni_bridge_state.damaged_records import DamagedRecord, load_all
from cni_bridge_state.db import Database
from cni_bridge_state.records import EndpointRecord, MemoryId, MemoryRecord

MEMORIES: Final = "memory/"
LIMIT: Final = 4096


class Memories:
    """The memories of a `Store`."""

    def __init__(self) -> None:
        self._all: dict[MemoryId, MemoryRecord] = {}

    def load(self, db: Database) -> Iterator[DamagedRecord]:
        """Parse the memories in the database; yield what is damaged."""
        self._all.clear()
        yield from load_all(db, MEMORIES, MemoryRecord, self.keep)

    def all(self) -> tuple[MemoryRecord, ...]:
        """Return all memories, by ID."""
        return tuple(self._all[memory_id] for memory_id in sorted(self._all))

    def find(self, configuration: str, key: str) -> MemoryRecord | None:
        """Return what the last container with a key had on a list, None if there was none."""
        return self._all.get(memory_id(configuration, key))

    def next_of(self, before: EndpointRecord | None, record: EndpointRecord) -> MemoryRecord | None:
        """Return what to remember when an endpoint's record is replaced; None if it gets no other addresses or MAC."""
        sticky = record.attachment.sticky
        has_been_attached = before is not None and before.phase.is_attached
        is_same = has_been_attached and before is not None and _having(before) == _having(record)
        if sticky is None or not record.phase.is_attached or not record.addresses or is_same:
            return None
        return MemoryRecord(
            id=memory_id(record.attachment.network, sticky.key),
            addresses=record.addresses,
            mac=record.mac,
            used_at=record.created_at or 0,
        )

    def render_changes(self, record: MemoryRecord | None) -> dict[str, bytes | None]:
        """Return the database's changes that store a memory, and remove the oldest one if there are too many."""
        if record is None:
            return {}
        changes: dict[str, bytes | None] = {f"{MEMORIES}{record.id}": render_value(record)}
        if record.id not in self._all and len(self._all) >= LIMIT:
            changes[f"{MEMORIES}{self._oldest()}"] = None
        return changes

    def keep(self, record: MemoryRecord) -> None:
        """Remember what has been stored."""
        if record.id not in self._all and len(self._all) >= LIMIT:
            del self._all[self._oldest()]
        self._all[record.id] = record

    def _oldest(self) -> MemoryId:
        return min(self._all.values(), key=lambda one: (one.used_at, one.id)).id


def memory_id(configuration: str, key: str) -> MemoryId:
    """Return the ID of the memory of a key on a network configuration list."""
    return MemoryId(f"{configuration}/{key}")


def _having(record: EndpointRecord) -> tuple[object, ...]:
    return record.addresses, record.mac
