# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between records, their documents, and stored values; pure.

A document is a JSON object that matches the schema of its kind, such as `spec/state/endpoint.json`; see `documents.py`.
A stored value is a document after a line with its checksum:

```
5b1fc2a9
{"id":"…","networkId":"…","phase":"joined",…}
```

Every field of a document is read when a store is opened, and its type is checked. Of a foreign document (a list, a
result, a snapshot) only that it is an object. Imported documents are validated by their schemas first (`value_of`),
which takes a millisecond each. The whole state is exported as one document, `spec/state/export.json`, and parsed again.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    get_int,
    get_object,
    get_objects,
    get_str,
    load_validator,
    parse_json,
    render_json,
)
from cni_bridge_state.address_records import AddressPoolRecord, AddressRecord
from cni_bridge_state.documents import parse, render
from cni_bridge_state.errors import ImportRefused, RecordDamaged
from cni_bridge_state.records import EndpointRecord, MemoryRecord, NetworkRecord

R = TypeVar("R")

SCHEMA_KEY: Final = "meta/schema"
SCHEMA_VERSION: Final = 1
"""A state with another one is refused. The release that changes a document raises it, and converts earlier ones."""

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "network": (NetworkRecord, "networks"),
    "endpoint": (EndpointRecord, "endpoints"),
    "pool": (AddressPoolRecord, "pools"),
    "address": (AddressRecord, "addresses"),
    "memory": (MemoryRecord, "memories"),
}
"""What a key begins with, before a slash → the kind of its record, and where the export has those of that kind."""

_DIGITS: Final = 8
"""The length of a checksum, a CRC-32."""


def render_value(record: object) -> bytes:
    """Return the stored value of a record."""
    return join_checksum(render_json(render(record)))


def parse_value(kind: type[R], key: str, value: bytes) -> R:
    """Return the record stored under `key`; a value that is none, or that of another key, is `RecordDamaged`."""
    text = value[_DIGITS + 1 :]
    if value[: _DIGITS + 1] != _checksum(text):
        raise RecordDamaged(key, "its checksum is wrong")
    try:
        document = as_object(parse_json(text), "the record")
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc
    return _parse(kind, key, document)


def value_of(key: str, document: JsonValue) -> bytes:
    """Return the stored value of a record's document, after validating it by its schema in `spec/state`.

    Raises:
        RecordDamaged: It violates its schema, cannot be read, or belongs to another key.
    """
    kind = key.partition("/")[0]
    try:
        valid = load_validator(f"state/{kind}")(document)
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc
    _parse(_KINDS[kind][0], key, valid)
    return join_checksum(render_json(valid))


def join_checksum(text: bytes) -> bytes:
    """Return the stored value of a document, which is JSON."""
    return _checksum(text) + text


def _checksum(text: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(text)


def _parse(kind: type[R], key: str, document: JsonObject) -> R:
    try:
        if document.get("id") != key.partition("/")[2]:
            raise JsonError(f"it is the record of {get_str(document, 'id')}")
        return parse(kind, document)
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


def render_export(meta: Mapping[str, str], records: Mapping[str, Iterable[object]]) -> Iterator[bytes]:
    """Yield the export as JSON, record by record; the records are given by what their keys begin with."""
    others = {key: value for key, value in meta.items() if key != SCHEMA_KEY}
    yield render_json({"schema": SCHEMA_VERSION, "meta": others})[:-1]
    for kind, (_, group) in _KINDS.items():
        yield f',"{group}":['.encode()
        for number, record in enumerate(records[kind]):
            yield (b"," if number else b"") + render_json(render(record))
        yield b"]"
    yield b"}"


def parse_export(document: JsonValue) -> Mapping[str, bytes]:
    """Return the keys and values of an export.

    Raises:
        ImportRefused: It is not an export, a record is damaged or duplicated, or it has another schema version.
    """
    try:
        checked = load_validator("state/export")(document)
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
    for kind, (_, group) in _KINDS.items():
        for record in get_objects(checked, group):
            key = f"{kind}/{get_str(record, 'id')}"
            if key in entries:
                raise ImportRefused(f"{key} is there twice")
            try:
                entries[key] = value_of(key, record)
            except RecordDamaged as exc:
                raise ImportRefused(f"record {key} cannot be imported: {exc.reason}") from exc
    return {**entries, SCHEMA_KEY: str(version).encode()}
