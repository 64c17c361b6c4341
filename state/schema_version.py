# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The schema version of a state: a newer one is refused, records of an older one are migrated."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, parse_json
from cni_bridge_state.codec import value_of_stored
from cni_bridge_state.db import Database
from cni_bridge_state.errors import RecordDamaged, SchemaTooNew, StateUnusable
from cni_bridge_state.migrations import SCHEMA_VERSION, migrate

__all__ = ["SCHEMA_KEY", "migrate_all", "refuse_newer"]

SCHEMA_KEY: Final = "meta/schema"
"""Where the version is stored, e.g. `3`."""


def refuse_newer(directory: Path, stored: bytes | None) -> None:
    """Refuse a state that a newer version wrote.

    Args:
        directory: The directory of the state.
        stored: The value of `SCHEMA_KEY`, None if there is none.

    Raises:
        SchemaTooNew: Its version is higher than `SCHEMA_VERSION`.
        RecordDamaged: Its version is not a number.
    """
    version = _schema_version(stored)
    if version is not None and version > SCHEMA_VERSION:
        raise SchemaTooNew(directory, version, SCHEMA_VERSION)


def migrate_all(db: Database, prefixes: Iterable[str]) -> str | None:
    """Migrate all records of an earlier version in one write; damaged ones stay, and are set aside later.

    Args:
        db: The open database.
        prefixes: Those of the records' keys.

    Returns:
        Why the write failed, None on success. After a failure the migrated records are in memory, and are written
        together with the next record.
    """
    version = _schema_version(db.get(SCHEMA_KEY))
    if version is None or version == SCHEMA_VERSION:
        return None
    changes: dict[str, bytes] = {SCHEMA_KEY: str(SCHEMA_VERSION).encode()}
    for prefix in prefixes:
        for key, value in db.scan(prefix):
            with suppress(ValueError, RecordDamaged):
                changes[key] = value_of_stored(key, migrate(key, parse_json(value), version))
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
    if isinstance(version, int) and not isinstance(version, bool):
        return version
    raise RecordDamaged(SCHEMA_KEY, "not a number")
