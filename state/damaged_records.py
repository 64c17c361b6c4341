# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Sets damaged records aside, so that one of them does not keep all containers down."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state.db import Database
from cni_bridge_state.directory import Damage, copy_path, remove_old_copies, sync_directory
from cni_bridge_state.errors import RecordDamaged, StateUnusable

_PREFIX: Final = "damaged-records"
_MODE: Final = 0o600

DamagedRecord = tuple[str, bytes, RecordDamaged]
"""Its key, its value, and what is wrong with it."""


def set_aside(db: Database, damaged: Sequence[DamagedRecord]) -> tuple[Damage, ...]:
    """Move damaged records into a file next to the database, and return a finding for each.

    The file is a JSON object: `{"records": [{"key": …, "reason": …, "text": … or "hex": …}]}`. It is on disk before the
    records are removed.

    Raises:
        StateUnusable: The file cannot be written; nothing has been changed.
    """
    if not damaged:
        return ()
    path = copy_path(db.path, _PREFIX, ".json")
    try:
        _write(path, {"records": [_describe(key, value, error) for key, value, error in damaged]})
    except OSError as exc:
        path.unlink(missing_ok=True)
        raise StateUnusable(db.path, "set damaged records aside from", exc) from exc
    try:
        db.write_now({key: None for key, _, _ in damaged})
    except StateUnusable:
        path.unlink(missing_ok=True)
        raise
    remove_old_copies(db.path, _PREFIX)
    return tuple(Damage(what=f"record {_shown(key)}: {error.reason}", lost=1, copy=path) for key, _, error in damaged)


def _describe(key: str, value: bytes, error: RecordDamaged) -> JsonObject:
    try:
        content = {"text": value.decode("utf-8")}
    except UnicodeDecodeError:
        content = {"hex": value.hex()}
    return {"key": _shown(key), "reason": error.reason, **content}


def _shown(key: str) -> str:
    """Return a key as text; bytes that are not UTF-8, which a repair may bring, as escapes."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _write(path: Path, document: JsonObject) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(fd, "wb") as file:
        file.write(render_json(document) + b"\n")
        file.flush()
        os.fsync(fd)
    sync_directory(path.parent)
