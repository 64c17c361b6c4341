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
which takes a millisecond each.
"""

import zlib
from collections.abc import Mapping
from typing import Final, TypeVar

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    get_str,
    load_validator,
    parse_json,
    render_json,
)
from cni_bridge_state.address_records import AddressPoolRecord, AddressRecord
from cni_bridge_state.documents import parse, render
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.records import EndpointRecord, MemoryRecord, NetworkRecord

R = TypeVar("R")

SCHEMA_KEY: Final = "meta/schema"
SCHEMA_VERSION: Final = 1
"""A state with another one is refused. The release that changes a document raises it, and converts earlier ones."""

KINDS: Final[Mapping[str, type]] = {
    "network": NetworkRecord,
    "endpoint": EndpointRecord,
    "pool": AddressPoolRecord,
    "address": AddressRecord,
    "memory": MemoryRecord,
}
"""What a key begins with, before a slash → the kind of its record."""

_DIGITS: Final = 8
"""The length of a checksum, a CRC-32."""


def render_value(record: object) -> bytes:
    """Return the stored value of a record."""
    return join_checksum(render_json(render(record)))


def parse_value(kind: type[R], key: str, value: bytes) -> R:
    """Return the record stored under `key`.

    Raises:
        RecordDamaged: The value is not a record of this kind, or it is that of another key.
    """
    try:
        document = as_object(parse_json(text_of(key, value)), "the record")
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc
    return _parse(kind, key, document)


def value_of(key: str, document: JsonValue) -> bytes:
    """Return the stored value of a record's document, after validating it.

    Args:
        key: Its key, such as `endpoint/<id>`.
        document: A document that should match its schema in `spec/state`.

    Raises:
        RecordDamaged: It violates its schema, cannot be read, or belongs to another key.
    """
    kind = key.partition("/")[0]
    try:
        valid = load_validator(f"state/{kind}")(document)
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc
    _parse(KINDS[kind], key, valid)
    return join_checksum(render_json(valid))


def text_of(key: str, value: bytes) -> bytes:
    """Return the document of a stored value as JSON.

    Raises:
        RecordDamaged: The value is not as it was written.
    """
    text = value[_DIGITS + 1 :]
    if value[: _DIGITS + 1] != _checksum(text):
        raise RecordDamaged(key, "its checksum is wrong")
    return text


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
