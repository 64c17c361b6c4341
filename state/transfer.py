# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Exports the whole state to one JSON document, `spec/state/export.json`, and parses it again; pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    get_int,
    get_object,
    get_objects,
    get_str,
    load_validator,
    render_json,
)
from cni_bridge_state.codec import text_of, value_of
from cni_bridge_state.errors import ImportRefused, RecordDamaged
from cni_bridge_state.migrations import SCHEMA_KEY, Migrations

_SCHEMA: Final = "state/export"

_GROUPS: Final = {
    "network": "networks",
    "endpoint": "endpoints",
    "pool": "pools",
    "address": "addresses",
    "memory": "memories",
}
"""Kind of a record, as in its key → where the export has the records of that kind."""


def render_export(entries: Iterable[tuple[str, bytes]], version: int) -> Iterator[bytes]:
    """Yield the export of a store's keys and values as JSON, record by record, as they are stored."""
    groups: dict[str, list[tuple[str, bytes]]] = {kind: [] for kind in _GROUPS}
    meta: dict[str, JsonValue] = {}
    for key, value in entries:
        kind, _, _ = key.partition("/")
        if kind in groups:
            groups[kind].append((key, value))
        elif key != SCHEMA_KEY:
            meta[key] = value.decode("utf-8", "replace")
    yield render_json({"schema": version, "meta": meta})[:-1]
    for kind, found in groups.items():
        yield f',"{_GROUPS[kind]}":['.encode()
        for number, (key, value) in enumerate(found):
            yield (b"," if number else b"") + text_of(key, value)
        yield b"]"
    yield b"}"


def parse_export(document: JsonValue, migrations: Migrations) -> Mapping[str, bytes]:
    """Return the keys and values of an export, without the schema version.

    Raises:
        ImportRefused: It is not an export, a record is damaged or duplicated, or its version is newer.
    """
    try:
        checked = load_validator(_SCHEMA)(document)
    except JsonError as exc:
        raise ImportRefused(f"this is not an exported state: {exc}") from exc
    found = get_int(checked, "schema")
    if found > migrations.version:
        raise ImportRefused(
            f"this state was exported with schema version {found}, this cni-bridge knows {migrations.version}: "
            "import it with the newer version"
        )
    meta = get_object(checked, "meta")
    entries = {key: get_str(meta, key).encode() for key in meta}
    for kind, group in _GROUPS.items():
        for record in get_objects(checked, group):
            key = f"{kind}/{get_str(record, 'id')}"
            if key in entries:
                raise ImportRefused(f"{key} is there twice")
            entries[key] = _bring_up(key, record, found, migrations)
    return entries


def _bring_up(key: str, record: JsonObject, found: int, migrations: Migrations) -> bytes:
    """Return the stored value of a record of this or an earlier schema version."""
    try:
        return value_of(key, migrations.migrate(key, record, found))
    except RecordDamaged as exc:
        raise ImportRefused(f"record {key} cannot be imported: {exc.reason}") from exc
    except ValueError as exc:
        raise ImportRefused(f"record {key} cannot be imported: {exc}") from exc
