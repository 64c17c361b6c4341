# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between records, their documents, and stored values; pure.

A document is a JSON object that matches `spec/state/network.json` or `spec/state/endpoint.json`: `_NETWORK` and
`_ENDPOINT` say which field of the record is under which name. A stored value is a document after a line with its
checksum:

```
5b1fc2a9
{"id":"…","networkId":"…","phase":"joined",…}
```

Every field of a document is read when a store is opened, and its type is checked. Of a foreign document (a list, a
result, a snapshot) only that it is an object. Documents from outside are validated by their schemas first (`value_of`),
which takes a millisecond each.
"""

import zlib
from collections.abc import Mapping
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network
from typing import Any, Final, TypeVar

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    get_object,
    get_objects,
    get_str,
    load_validator,
    parse_json,
    render_json,
)
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.forms import (
    DOCUMENT,
    FLAG,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLES,
    Fields,
    converted,
    nested,
    one_of,
    optional,
    refuse_unknown,
)
from cni_bridge_state.phases import Phase
from cni_bridge_state.records import (
    AttachmentRecord,
    AttachMode,
    DnsOption,
    EndpointRecord,
    IdentityKind,
    IdentityRequest,
    NetworkRecord,
    PoolRecord,
    PortRequest,
    ProcessRecord,
    RequestedInterface,
    ReservationInput,
)

T = TypeVar("T")

_DIGITS: Final = 8
"""The length of a checksum, a CRC-32."""


def render_network(record: NetworkRecord) -> bytes:
    """Return the stored value of a network record."""
    return join_checksum(render_json(_NETWORK.render(record)))


def render_endpoint(record: EndpointRecord) -> bytes:
    """Return the stored value of an endpoint record."""
    return join_checksum(render_json(_ENDPOINT.render(record)))


def parse_network(key: str, value: bytes) -> NetworkRecord:
    """Return the network record stored under `key`.

    Raises:
        RecordDamaged: The value is not a network record, or it is that of another key.
    """
    return _parse(_NETWORK, key, document_of(key, value))


def parse_endpoint(key: str, value: bytes) -> EndpointRecord:
    """Return the endpoint record stored under `key`.

    Raises:
        RecordDamaged: The value is not an endpoint record, or it is that of another key.
    """
    return _parse(_ENDPOINT, key, document_of(key, value))


def value_of(key: str, document: JsonValue) -> bytes:
    """Return the stored value of a record's document, after validating it.

    Args:
        key: Its key: `network/<id>` or `endpoint/<id>`.
        document: A document that should match its schema in `spec/state`.

    Raises:
        RecordDamaged: It violates its schema, cannot be read, or belongs to another key.
    """
    try:
        return value_of_migrated(key, load_validator(f"state/{_kind_of(key)}")(document))
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


def value_of_migrated(key: str, document: JsonObject) -> bytes:
    """Return the stored value of a document that comes from an earlier version's record, without validating it.

    An upgrade converts all records before it answers the first call. The earlier version made the document from a
    record, and its checksum proves that it is unchanged.

    Raises:
        RecordDamaged: It cannot be read, or belongs to another key.
    """
    _parse(_FIELDS[_kind_of(key)], key, document)
    return join_checksum(render_json(document))


def document_of(key: str, value: bytes) -> JsonObject:
    """Return the document of a stored value.

    Raises:
        RecordDamaged: The value is not as it was written.
    """
    try:
        return as_object(parse_json(text_of(key, value)), "the record")
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


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


def _kind_of(key: str) -> str:
    return key.partition("/")[0]


def _parse(fields: Fields[T], key: str, document: JsonObject) -> T:
    try:
        if document.get("id") != key.partition("/")[2]:
            raise JsonError(f"it is the record of {get_str(document, 'id')}")
        return fields.parse(document)
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


def _parse_options(document: JsonObject, name: str) -> Mapping[str, str]:
    options = get_object(document, name)
    return {option: get_str(options, option) for option in options}


def _parse_args(document: JsonObject, name: str) -> tuple[tuple[str, str], ...]:
    return tuple(map(_parse_arg, get_objects(document, name)))


def _parse_arg(arg: JsonObject) -> tuple[str, str]:
    key, value = get_str(arg, "key"), get_str(arg, "value")
    refuse_unknown(arg, ("key", "value"))
    return key, value


def _render_args(args: tuple[tuple[str, str], ...]) -> JsonValue:
    return [{"key": key, "value": value} for key, value in args]


_ARGS: Final = nested(_parse_args, _render_args)

_PROCESS: Final = Fields(ProcessRecord, {"pid": ("pid", WHOLE), "started": ("started", WHOLE)})
_POOL: Final = Fields(
    PoolRecord, {"subnet": ("subnet", converted(ip_network)), "gateway": ("gateway", optional(converted(ip_address)))}
)
_NETWORK: Final = Fields(
    NetworkRecord,
    {
        "id": ("id", TEXT),
        "configuration": ("configuration", optional(TEXT)),
        "name": ("name", optional(TEXT)),
        "internal": ("internal", FLAG),
        "options": ("options", nested(_parse_options)),
        "pools": ("pools", _POOL.many),
        "engine": ("engine", optional(TEXT)),
        "caller": ("caller", optional(_PROCESS.one)),
    },
)
_REQUESTED: Final = Fields(
    RequestedInterface,
    {
        "address": ("address", optional(converted(IPv4Interface))),
        "address_ipv6": ("addressIPv6", optional(converted(IPv6Interface))),
        "mac": ("mac", optional(TEXT)),
    },
)
_PORT: Final = Fields(
    PortRequest,
    {
        "protocol": ("protocol", WHOLE),
        "container_port": ("containerPort", WHOLE),
        "host_ip": ("hostIp", optional(converted(ip_address))),
        "host_port": ("hostPort", WHOLE),
        "host_port_end": ("hostPortEnd", WHOLE),
    },
)
_IDENTITY: Final = Fields(
    IdentityRequest,
    {"kind": ("kind", one_of(IdentityKind)), "labels": ("labels", TEXTS), "is_required": ("isRequired", FLAG)},
)
_RESERVATION_INPUT: Final = Fields(ReservationInput, {"plugin": ("plugin", DOCUMENT), "args": ("args", _ARGS)})
_ATTACHMENT: Final = Fields(
    AttachmentRecord,
    {
        "id": ("id", TEXT),
        "mode": ("mode", one_of(AttachMode)),
        "mode_reason": ("modeReason", TEXT),
        "ifname": ("ifname", TEXT),
        "netns": ("netns", TEXT),
        "configuration": ("configuration", DOCUMENT),
        "cni_version": ("cniVersion", TEXT),
        "args": ("args", _ARGS),
        "capability_args": ("capabilityArgs", DOCUMENT),
        "reservation": ("reservation", optional(DOCUMENT)),
        "reservation_input": ("reservationInput", optional(_RESERVATION_INPUT.one)),
        "identity": ("identity", optional(_IDENTITY.one)),
        "dns": ("dns", optional(one_of(DnsOption))),
    },
)
_ENDPOINT: Final = Fields(
    EndpointRecord,
    {
        "id": ("id", TEXT),
        "network_id": ("networkId", TEXT),
        "phase": ("phase", one_of(Phase)),
        "boot_id": ("bootId", TEXT),
        "internal": ("internal", FLAG),
        "requested": ("requested", _REQUESTED.one),
        "attachment": ("attachment", _ATTACHMENT.one),
        "added_plugins": ("answered", WHOLE),
        "deleted": ("deleted", WHOLES),
        "result": ("result", optional(DOCUMENT)),
        "snapshot": ("snapshot", optional(DOCUMENT)),
        "addresses": ("addresses", TEXTS),
        "sandbox_key": ("sandboxKey", optional(TEXT)),
        "ifname_prefix": ("ifnamePrefix", TEXT),
        "caller": ("caller", optional(_PROCESS.one)),
        "first_process": ("firstProcess", optional(_PROCESS.one)),
        "lease_holder": ("leaseHolder", optional(_PROCESS.one)),
        "created_at": ("createdAt", optional(WHOLE)),
        "configuration_digest": ("configurationDigest", optional(TEXT)),
        "requested_ports": ("requestedPorts", _PORT.many),
    },
)
_FIELDS: Final[Mapping[str, Fields[Any]]] = {"network": _NETWORK, "endpoint": _ENDPOINT}
