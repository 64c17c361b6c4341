# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between stored values and the documents of an export; pure.

A document matches `spec/state/network.json` or `spec/state/endpoint.json`. Both schemas are closed: an unknown key
means damage. Documents from outside are validated (`value_of`), which takes a millisecond each. A stored value that
this version wrote is not validated again, because its checksum proves that it is unchanged.
"""

from typing import Final

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    get_object,
    load_validator,
    parse_json,
    render_json,
)
from cni_bridge_state.codec.endpoint import ENDPOINT_LINES, INVALID, parse_endpoint
from cni_bridge_state.codec.network import NETWORK_LINES, parse_network
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.records import network_name
from cni_bridge_state.stored_value import RECORD_LINE, check_lines, join_lines, line_of

__all__ = ["document_of", "value_of", "value_of_stored"]

_LINES: Final = {"network": NETWORK_LINES, "endpoint": ENDPOINT_LINES}


def value_of(key: str, document: JsonValue) -> bytes:
    """Return the stored value of a record's document, after validating it.

    Args:
        key: Its key: `network/<id>` or `endpoint/<id>`.
        document: A document that should match its schema in `spec/state`.

    Raises:
        RecordDamaged: It violates its schema, cannot be read, or belongs to another key.
    """
    try:
        return value_of_stored(key, load_validator(f"state/{key.partition('/')[0]}")(document))
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


def value_of_stored(key: str, document: JsonObject) -> bytes:
    """Return the stored value of a document that an earlier version stored, without validating it.

    An upgrade converts all records before it answers the first call, and validation would take a millisecond each. The
    earlier version validated the document when it stored it, and LevelDB's checksums prove that it is unchanged.

    Raises:
        RecordDamaged: It cannot be read, or belongs to another key.
    """
    is_endpoint = key.startswith("endpoint/")
    try:
        value = _join_endpoint(document) if is_endpoint else join_lines([render_json(document)])
    except (JsonError, KeyError) as exc:
        raise RecordDamaged(key, exc) from exc
    if is_endpoint:
        endpoint = parse_endpoint(key, value)
        try:
            _ = endpoint.attachment
        except INVALID as exc:
            raise RecordDamaged(key, exc) from exc
    else:
        parse_network(key, value)
    return value


def document_of(key: str, value: bytes) -> JsonObject:
    """Return the document of a stored value: the inverse of `value_of`.

    Raises:
        RecordDamaged: The value is damaged.
    """
    kind = key.partition("/")[0]
    check_lines(key, value, _LINES[kind])
    try:
        record = as_object(parse_json(line_of(value, RECORD_LINE)), key)
        if kind == "network":
            return record
        rest, configuration, result, snapshot = (parse_json(line) for line in value.split(b"\n")[RECORD_LINE + 1 :])
        head = get_object(record, "attachment")
        attachment = {"id": head["id"], "mode": head["mode"], **as_object(rest, key), "configuration": configuration}
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc
    return {**record, "attachment": attachment, "result": result, "snapshot": snapshot}


def _join_endpoint(document: JsonObject) -> bytes:
    attachment = get_object(document, "attachment")
    record = {name: document[name] for name in document if name not in {"attachment", "result", "snapshot"}}
    head: JsonObject = {
        "id": attachment["id"],
        "mode": attachment["mode"],
        "network": network_name(get_object(attachment, "configuration")),
        "hasCapabilityArgs": bool(attachment["capabilityArgs"]),
    }
    rest = {name: attachment[name] for name in attachment if name not in {"id", "mode", "configuration"}}
    documents = (attachment["configuration"], document["result"], document["snapshot"])
    return join_lines([render_json(part) for part in ({**record, "attachment": head}, rest, *documents)])
