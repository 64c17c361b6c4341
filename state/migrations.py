# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The schema version of a state: a newer one is refused, records of an older one are migrated."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, parse_json
from cni_bridge_state.codec import document_of, value_of_migrated
from cni_bridge_state.db import Database
from cni_bridge_state.errors import RecordDamaged, SchemaTooNew, StateUnusable

Step = Mapping[str, Callable[[JsonObject], JsonObject]]
"""Kind of record, as in its key → what leads from its document to that of the next version, where it changes."""

SCHEMA_KEY: Final = "meta/schema"
"""Where the version is stored, e.g. `1`."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """The steps from each schema version to the next.

    Attributes:
        steps: The first leads from version 1 to 2. A step of a release never changes again.
    """

    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """The current schema version, to which the last step leads."""
        return len(self.steps) + 1

    def migrate(self, key: str, document: JsonValue, version: int) -> JsonObject:
        """Return a record's document in the current version; it is not validated.

        Args:
            key: Its key, e.g. `endpoint/4f2a`.
            document: The record.
            version: The schema version that it was written in.

        Raises:
            ValueError: The document is not a record of that version; a `JsonError` if a key has another type.
        """
        current = as_object(document, key)
        for step in self.steps[version - 1 :]:
            change = step.get(key.partition("/")[0])
            if change is not None:
                current = change(current)
        return current


MIGRATIONS: Final = Migrations()
"""Those of this release."""

SCHEMA_VERSION: Final = MIGRATIONS.version


def refuse_newer(directory: Path, stored: bytes | None, known: int) -> None:
    """Refuse a state that a newer version wrote.

    Raises:
        SchemaTooNew: Its version is higher.
        RecordDamaged: Its version is not a number from 1 on.
    """
    version = _schema_version(stored)
    if version is not None and version > known:
        raise SchemaTooNew(directory, version, known)


def migrate_all(db: Database, prefixes: Iterable[str], migrations: Migrations) -> str | None:
    """Migrate all records of an earlier version in one write; damaged ones stay, and are set aside later.

    Returns:
        Why the write failed, None on success. After a failure the migrated records are in memory, and are written
        together with the next record.
    """
    version = _schema_version(db.get(SCHEMA_KEY))
    if version is None or version == migrations.version:
        return None
    changes: dict[str, bytes] = {SCHEMA_KEY: str(migrations.version).encode()}
    for prefix in prefixes:
        for key, value in db.scan(prefix):
            with suppress(ValueError, RecordDamaged):
                changes[key] = value_of_migrated(key, migrations.migrate(key, document_of(key, value), version))
    db.hold(changes)
    try:
        db.write_now({})
    except StateUnusable as exc:
        return str(exc)
    return None


def _schema_version(stored: bytes | None) -> int | None:
    """Return the schema version that is stored under its key, None if there is none."""
    if stored is None:
        return None
    try:
        version = parse_json(stored)
    except JsonError as exc:
        raise RecordDamaged(SCHEMA_KEY, exc) from exc
    if isinstance(version, int) and not isinstance(version, bool) and version > 0:
        return version
    raise RecordDamaged(SCHEMA_KEY, "not a number from 1 on")
