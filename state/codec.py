# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between records, stored values, and the documents of an export; pure.

A document matches `spec/state/network.json` or `spec/state/endpoint.json`. Both schemas are closed: an unknown key
means damage. Documents from outside are validated (`value_of`), which takes a millisecond each. A stored value that
this version wrote is not validated again, because its checksum proves that it is unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network
from sys import intern
from typing import Any, Final

from spec import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    find_str,
    get_bool,
    get_object,
    get_objects,
    get_str,
    load_validator,
    parse_json,
    render_json,
)
from state.errors import RecordDamaged
from state.lazy_field import StoredDocument
from state.phases import Phase
from state.records import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    PoolRecord,
    ProcessRecord,
    RequestedInterface,
    network_name,
)
from state.stored_value import check_lines, join_lines, line_of

__all__ = [
    "as_stored",
    "document_of",
    "parse_endpoint",
    "parse_network",
    "render_endpoint",
    "render_network",
    "value_of",
    "value_of_stored",
]

_RECORD: Final = 1
_ATTACHMENT: Final = 2
_CONFIGURATION: Final = 3
_RESULT: Final = 4
_SNAPSHOT: Final = 5
_LINES: Final = {"network": 2, "endpoint": 6}
_NO_RECORD: Final = (LookupError, TypeError, ValueError)
"""What reading an invalid record raises; an invalid address is a ValueError, and so is a JsonError."""
_CONFIGURATIONS: Final = 1024
"""How many different network configuration lists are held once, however many endpoints were made with them."""


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
        except _NO_RECORD as exc:
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
        record = as_object(parse_json(line_of(value, _RECORD)), key)
        if kind == "network":
            return record
        rest, configuration, result, snapshot = (parse_json(line) for line in value.split(b"\n")[_ATTACHMENT:])
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


def render_network(record: NetworkRecord) -> bytes:
    """Return the stored value of a network record."""
    document: JsonObject = {
        "id": record.id,
        "configuration": record.configuration,
        "name": record.name,
        "internal": record.internal,
        "options": record.options,
        "pools": [
            {"subnet": str(pool.subnet), "gateway": None if pool.gateway is None else str(pool.gateway)}
            for pool in record.pools
        ],
    }
    return join_lines([render_json(document)])


def parse_network(key: str, value: bytes) -> NetworkRecord:
    """Return the network record stored under `key`.

    Raises:
        RecordDamaged: The value is not a network record.
    """
    check_lines(key, value, _LINES["network"])
    try:
        document = as_object(parse_json(line_of(value, _RECORD)), key)
        options = get_object(document, "options")
        return NetworkRecord(
            id=NetworkId(_own_id(key, get_str(document, "id"))),
            configuration=find_str(document, "configuration"),
            name=find_str(document, "name"),
            internal=get_bool(document, "internal"),
            options={name: get_str(options, name) for name in options},
            pools=tuple(map(_parse_pool, get_objects(document, "pools"))),
        )
    except ValueError as exc:  # JsonError among them, and an address that is none
        raise RecordDamaged(key, exc) from exc


def render_endpoint(record: EndpointRecord) -> bytes:
    """Return the stored value of an endpoint record."""
    attachment = record.attachment
    requested = record.requested
    caller = record.caller
    document: JsonObject = {
        "id": record.id,
        "networkId": record.network_id,
        "phase": record.phase.value,
        "bootId": record.boot_id,
        "internal": record.internal,
        "requested": {
            "address": str(requested.address) if requested.address else None,
            "addressIPv6": str(requested.address_ipv6) if requested.address_ipv6 else None,
            "mac": requested.mac,
        },
        "answered": record.added_plugins,
        "deleted": record.deleted,
        "addresses": record.addresses,
        "sandboxKey": record.sandbox_key,
        "ifnamePrefix": record.ifname_prefix,
        "caller": {"pid": caller.pid, "started": caller.started} if caller else None,
        "attachment": {
            "id": attachment.id,
            "mode": attachment.mode.value,
            "network": attachment.network,
            "hasCapabilityArgs": attachment.has_capability_args,
        },
    }
    rest: JsonObject = {
        "ifname": attachment.ifname,
        "netns": attachment.netns,
        "cniVersion": attachment.cni_version,
        "args": [{"key": key, "value": value} for key, value in attachment.args],
        "capabilityArgs": attachment.capability_args,
    }
    documents = (attachment.configuration, record.result, record.snapshot)
    return join_lines([render_json(document), render_json(rest), *map(render_json, documents)])


def parse_endpoint(key: str, value: bytes) -> EndpointRecord:
    """Return the endpoint record stored under `key`.

    Raises:
        RecordDamaged: The value is not an endpoint record.
    """
    check_lines(key, value, _LINES["endpoint"])
    try:
        # The checksum says that this was written from a record, so the types of its fields are not checked once more:
        # with ten thousand endpoints that was a third of the time that the state takes to open.
        document: Mapping[str, Any] = as_object(parse_json(line_of(value, _RECORD)), key)
        attachment = document["attachment"]
        return EndpointRecord(
            id=EndpointId(_own_id(key, document["id"])),
            network_id=NetworkId(intern(document["networkId"])),
            phase=Phase(document["phase"]),
            boot_id=intern(document["bootId"]),
            internal=document["internal"],
            requested=_parse_requested(document["requested"]),
            attachment=_StoredAttachment(
                value,
                AttachmentId(attachment["id"]),
                AttachMode(attachment["mode"]),
                intern(attachment["network"]),
                attachment["hasCapabilityArgs"],
            ),
            added_plugins=document["answered"],
            deleted=tuple(document["deleted"]),
            result=StoredDocument(value, _RESULT),
            snapshot=StoredDocument(value, _SNAPSHOT),
            addresses=tuple(document["addresses"]),
            sandbox_key=document["sandboxKey"],
            ifname_prefix=intern(document.get("ifnamePrefix") or "eth"),
            caller=_parse_process(document.get("caller")),
        )
    except _NO_RECORD as exc:
        raise RecordDamaged(key, exc) from exc


def as_stored(record: EndpointRecord, value: bytes) -> EndpointRecord:
    """Return what `parse_endpoint` gives for the value that `render_endpoint` has made of a record, without parsing it.

    Of an endpoint with ten thousand ports that would take as long as all else that is done to store it.
    """
    configuration = _parse_configuration(line_of(value, _CONFIGURATION))
    return replace(
        record,
        network_id=NetworkId(intern(record.network_id)),
        boot_id=intern(record.boot_id),
        attachment=replace(record.attachment, configuration=configuration),
        result=StoredDocument(value, _RESULT),
        snapshot=StoredDocument(value, _SNAPSHOT),
    )


def _own_id(key: str, found: str) -> str:
    """Return a record's ID; it must match its key."""
    if key.partition("/")[2] != found:
        raise JsonError(f"it is the record of {found}")
    return found


def _parse_pool(document: JsonObject) -> PoolRecord:
    gateway = find_str(document, "gateway")
    return PoolRecord(subnet=ip_network(get_str(document, "subnet")), gateway=ip_address(gateway) if gateway else None)


def _parse_process(document: Mapping[str, Any] | None) -> ProcessRecord | None:
    return None if document is None else _process(document["pid"], document["started"])


@lru_cache(maxsize=16)
def _process(pid: int, started: int) -> ProcessRecord:
    """Return a record of a process; most endpoints are the same engine's."""
    return ProcessRecord(pid=pid, started=started)


def _parse_requested(document: Mapping[str, Any]) -> RequestedInterface:
    address, address_ipv6, mac = document["address"], document["addressIPv6"], document["mac"]
    if address is address_ipv6 is mac is None:
        return _NOTHING
    return RequestedInterface(
        address=IPv4Interface(address) if address else None,
        address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
        mac=mac,
    )


@dataclass(frozen=True, slots=True)
class _StoredAttachment:
    """An attachment that has not been parsed.

    Attributes:
        value: The stored value that it is part of.
        id: As in `AttachmentRecord`, like all that follow; known without parsing the attachment.
        mode: As there.
        network: As there.
        has_capability_args: As there.
    """

    value: bytes
    id: AttachmentId
    mode: AttachMode
    network: str
    has_capability_args: bool

    @property
    def configuration(self) -> JsonObject:
        """As in `AttachmentRecord`; only this line is parsed, and only once for all records that have it."""
        return _parse_configuration(line_of(self.value, _CONFIGURATION))

    def parse(self) -> AttachmentRecord:
        _, _, attachment, configuration, _, _ = self.value.split(b"\n")
        return _parse_attachment(self.id, self.mode, as_object(parse_json(attachment), "attachment"), configuration)


def _parse_attachment(
    attachment_id: AttachmentId, mode: AttachMode, document: Mapping[str, Any], configuration: bytes
) -> AttachmentRecord:
    return AttachmentRecord(
        id=attachment_id,
        mode=mode,
        ifname=intern(document["ifname"]),
        netns=document["netns"],
        configuration=_parse_configuration(configuration),
        cni_version=intern(document["cniVersion"]),
        args=tuple([(arg["key"], arg["value"]) for arg in document["args"]]),
        capability_args=document["capabilityArgs"] or _EMPTY,
    )


@lru_cache(maxsize=_CONFIGURATIONS)
def _parse_configuration(text: bytes) -> JsonObject:
    """Return a network configuration list; equal texts give the same object."""
    return as_object(parse_json(text), "configuration")


_NOTHING: Final = RequestedInterface()
_EMPTY: Final[JsonObject] = {}
