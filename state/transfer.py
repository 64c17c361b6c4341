# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Exports the whole state to one JSON document, `spec/state/export.json`, and parses it again; pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cni_bridge_spec import (
    JsonError,
    JsonValue,
    get_int,
    get_object,
    get_objects,
    get_str,
    load_validator,
    render_json,
)
from cni_bridge_state.codec import SCHEMA_KEY, SCHEMA_VERSION, text_of, value_of
from cni_bridge_state.errors import ImportRefused, RecordDamaged

_SCHEMA: Final = "state/export"

_GROUPS: Final = {
    "network": "networks",
    "endpoint": "endpoints",
    "pool": "pools",
    "address": "addresses",
    "memory": "memories",
}
"""Kind of a record, as in its key → where the export has the records of that kind."""


def render_export(entries: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield the export of a store's keys and values as JSON, record by record, as they are stored."""
    groups: dict[str, list[tuple[str, bytes]]] = {kind: [] for kind in _GROUPS}
    meta: dict[str, JsonValue] = {}
    for key, value in entries:
        kind, _, _ = key.partition("/")
        if kind in groups:
            groups[kind].append((key, value))
        elif key != SCHEMA_KEY:
            meta[key] = value.decode("utf-8", "replace")
    yield render_json({"schema": SCHEMA_VERSION, "meta": meta})[:-1]
    for kind, records in groups.items():
        yield f',"{_GROUPS[kind]}":['.encode()
        for number, (key, value) in enumerate(records):
            yield (b"," if number else b"") + text_of(key, value)
        yield b"]"
    yield b"}"


def parse_export(document: JsonValue) -> Mapping[str, bytes]:
    """Return the keys and values of an export.

    Raises:
        ImportRefused: It is not an export, a record is damaged or duplicated, or it has another schema version.
    """
    try:
        checked = load_validator(_SCHEMA)(document)
    except JsonError as exc:
        raise ImportRefused(f"this is not an exported state: {exc}") from exc
    version = get_int(checked, "schema")
    if version != SCHEMA_VERSION:
        raise ImportRefused(
            f"this state was exported with schema version {version}, this cni-bridge knows {SCHEMA_VERSION}: import it "
            "with the version that exported it"
        )
    meta = get_object(checked, "meta")
    entries = {key: get_str(meta, key).encode() for key in meta}
    for kind, group in _GROUPS.items():
        for record in get_objects(checked, group):
            key = f"{kind}/{get_str(record, 'id')}"
            if key in entries:
                raise ImportRefused(f"{key} is there twice")
            try:
                entries[key] = value_of(key, record)
            except RecordDamaged as exc:
                raise ImportRefused(f"record {key} cannot be imported: {exc.reason}") from exc
    return {**entries, SCHEMA_KEY: str(version).encode()}
