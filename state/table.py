# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A table: the records of one kind, in memory and in the database, found by ID and by values in them."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from cni_bridge_state.codec import parse_value, render_value
from cni_bridge_state.db import Database
from cni_bridge_state.errors import RecordDamaged


class Record(Protocol):
    """A record with an ID."""

    @property
    def id(self) -> str:
        """The ID, which the key ends with."""
        ...


R = TypeVar("R", bound=Record)


class Index(Generic[R]):
    """Records by values in them, which `keys_of` gives, so that a look-up does not scan all."""

    def __init__(self, keys_of: Callable[[R], Iterable[Hashable]]) -> None:
        self._keys_of = keys_of
        self._records: dict[Hashable, tuple[R, ...]] = {}  # few each: a set would take four times the memory

    def add(self, record: R) -> None:
        """Add a record."""
        for key in self._keys_of(record):
            self._records[key] = (*self._records.get(key, ()), record)

    def discard(self, record: R) -> None:
        """Remove a record."""
        for key in self._keys_of(record):
            others = tuple(other for other in self._records.pop(key, ()) if other is not record)
            if others:
                self._records[key] = others

    def find(self, *keys: Hashable) -> tuple[R, ...]:
        """Return the records found under any of some keys, each once; those of one key in the order of `add`."""
        return tuple({id(record): record for key in keys for record in self._records.get(key, ())}.values())


class Table(Generic[R]):
    """The records of one kind, stored under `<name>/<ID>`."""

    def __init__(self, db: Database, name: str, kind: type[R]) -> None:
        self._db = db
        self._prefix = f"{name}/"
        self._kind = kind
        self._records: dict[str, R] = {}
        self._in_order: tuple[R, ...] | None = None
        self._indexes: list[Index[R]] = []

    def __len__(self) -> int:
        return len(self._records)

    def index(self, keys_of: Callable[[R], Iterable[Hashable]]) -> Index[R]:
        """Return an index of the records, which follows all changes."""
        index = Index(keys_of)
        self._indexes.append(index)
        return index

    def load(self, change: Callable[[R], R] = lambda record: record) -> Iterator[RecordDamaged]:
        """Parse the records in the database, and keep what `change` makes of them; yield the damaged ones."""
        for key, value in self._db.scan(self._prefix):
            try:
                self.keep(change(parse_value(self._kind, key, value)))
            except RecordDamaged as exc:
                yield exc

    def all(self) -> tuple[R, ...]:
        """Return all records, by ID."""
        if self._in_order is None:
            self._in_order = tuple(self._records[record_id] for record_id in sorted(self._records))
        return self._in_order

    def find(self, record_id: str) -> R | None:
        """Return a record, None if there is none with this ID."""
        return self._records.get(record_id)

    async def put(self, record: R) -> None:
        """Store a record, in place of an earlier one with its ID."""
        await self._db.write(self.changes(record), on_written=lambda: self.keep(record))

    async def remove(self, record_id: str, on_removed: Callable[[R | None], None] = lambda _: None) -> None:
        """Remove a record, if there is one; `on_removed` is called with it in the event loop."""
        await self._db.write(self.removal(record_id), on_written=lambda: on_removed(self.forget(record_id)))

    def changes(self, record: R) -> Mapping[str, bytes | None]:
        """Return the change of the database that stores a record."""
        return {f"{self._prefix}{record.id}": render_value(record)}

    def removal(self, record_id: str) -> Mapping[str, bytes | None]:
        """Return the change of the database that removes a record."""
        return {f"{self._prefix}{record_id}": None}

    def keep(self, record: R) -> R | None:
        """Take a record that is in the database into memory; return the one that it replaces."""
        before = self.forget(record.id)
        self._records[record.id] = record
        for index in self._indexes:
            index.add(record)
        return before

    def forget(self, record_id: str) -> R | None:
        """Remove a record from memory, and return it."""
        self._in_order = None
        record = self._records.pop(record_id, None)
        if record is not None:
            for index in self._indexes:
                index.discard(record)
        return record
