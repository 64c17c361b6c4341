# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between an endpoint record and its stored value; pure.

The attachment, the result and the snapshot stay text when a value is read, and are parsed when they are first needed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Interface, IPv6Interface
from sys import intern
from typing import Any, Final, NamedTuple

from cni_bridge_spec import JsonObject, JsonValue, as_object, parse_json, parse_rendered_json, render_json
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.lazy_field import StoredDocument
from cni_bridge_state.phases import Phase
from cni_bridge_state.records import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    DnsOption,
    EndpointId,
    EndpointRecord,
    IdentityKind,
    IdentityRequest,
    NetworkId,
    ProcessRecord,
    RequestedInterface,
    ReservationInput,
)
from cni_bridge_state.stored_value import RECORD_LINE, check_lines, join_lines, line_of, own_id

__all__ = ["ENDPOINT_LINES", "INVALID", "as_stored", "parse_endpoint", "render_endpoint"]

ENDPOINT_LINES: Final = 6
"""How many lines a stored endpoint has."""

INVALID: Final = (LookupError, TypeError, ValueError)
"""What reading an invalid record raises; an invalid address is a ValueError, and so is a JsonError."""

_CONFIGURATION: Final = 3
_RESULT: Final = 4
_SNAPSHOT: Final = 5
_CONFIGURATIONS: Final = 1024
"""How many different network configuration lists are held once, however many endpoints were made with them."""


def render_endpoint(record: EndpointRecord) -> bytes:
    """Return the stored value of an endpoint record."""
    attachment = record.attachment
    requested = record.requested
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
        "caller": _render_process(record.caller),
        "firstProcess": _render_process(record.first_process),
        "leaseHolder": _render_process(record.lease_holder),
        "createdAt": record.created_at,
        "configurationDigest": record.configuration_digest,
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
        "args": _render_args(attachment.args),
        "capabilityArgs": attachment.capability_args,
        "reservation": attachment.reservation,
        "reservationInput": _render_input(attachment.reservation_input),
        "identity": _render_identity(attachment.identity),
        "dns": attachment.dns.value if attachment.dns else None,
        "modeReason": attachment.mode_reason,
    }
    documents = (attachment.configuration, record.result, record.snapshot)
    return join_lines([render_json(document), render_json(rest), *map(render_json, documents)])


def parse_endpoint(key: str, value: bytes) -> EndpointRecord:
    """Return the endpoint record stored under `key`.

    Raises:
        RecordDamaged: The value is not an endpoint record.
    """
    check_lines(key, value, ENDPOINT_LINES)
    try:
        # The checksum says that this was written from a record, so the types of its fields are not checked once more:
        # with ten thousand endpoints that was a third of the time that the state takes to open.
        document: Mapping[str, Any] = as_object(parse_rendered_json(line_of(value, RECORD_LINE)), key)
        attachment = document["attachment"]
        return EndpointRecord(
            id=EndpointId(own_id(key, document["id"])),
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
            first_process=_parse_process(document.get("firstProcess")),
            lease_holder=_parse_process(document.get("leaseHolder")),
            created_at=document.get("createdAt"),
            configuration_digest=_intern(document.get("configurationDigest")),
        )
    except INVALID as exc:
        raise RecordDamaged(key, exc) from exc


def as_stored(record: EndpointRecord, value: bytes) -> EndpointRecord:
    """Return what `parse_endpoint` gives for the value that `render_endpoint` has made of a record, without parsing it.

    Of an endpoint with ten thousand ports that would take as long as all else that is done to store it.
    """
    attachment = record.attachment
    configuration = _parse_configuration(line_of(value, _CONFIGURATION))
    if attachment.configuration is not configuration:
        attachment = replace(attachment, configuration=configuration)
    return replace(
        record,
        network_id=NetworkId(intern(record.network_id)),
        boot_id=intern(record.boot_id),
        attachment=attachment,
        result=StoredDocument.made_of(record.result, value, _RESULT),
        snapshot=StoredDocument.made_of(record.snapshot, value, _SNAPSHOT),
    )


def _intern(text: str | None) -> str | None:
    return None if text is None else intern(text)


def _render_process(process: ProcessRecord | None) -> JsonObject | None:
    return None if process is None else {"pid": process.pid, "started": process.started}


def _parse_process(document: Mapping[str, Any] | None) -> ProcessRecord | None:
    return None if document is None else _process(document["pid"], document["started"])


@lru_cache(maxsize=16)
def _process(pid: int, started: int) -> ProcessRecord:
    """Return a record of a process; most endpoints are the same engine's."""
    return ProcessRecord(pid=pid, started=started)


def _render_args(args: tuple[tuple[str, str], ...]) -> list[JsonValue]:
    return [{"key": key, "value": value} for key, value in args]


def _parse_args(found: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple([(arg["key"], arg["value"]) for arg in found])


def _render_input(received: ReservationInput | None) -> JsonObject | None:
    return None if received is None else {"plugin": received.plugin, "args": _render_args(received.args)}


def _parse_input(document: Mapping[str, Any] | None) -> ReservationInput | None:
    if document is None:
        return None
    return ReservationInput(plugin=document["plugin"], args=_parse_args(document["args"]))


def _render_identity(request: IdentityRequest | None) -> JsonObject | None:
    if request is None:
        return None
    return {"kind": request.kind.value, "labels": request.labels, "isRequired": request.is_required}


def _parse_identity(document: Mapping[str, Any] | None) -> IdentityRequest | None:
    if document is None:
        return None
    return IdentityRequest(
        kind=IdentityKind(document["kind"]), labels=tuple(document["labels"]), is_required=document["isRequired"]
    )


def _parse_requested(document: Mapping[str, Any]) -> RequestedInterface:
    address, address_ipv6, mac = document["address"], document["addressIPv6"], document["mac"]
    if address is address_ipv6 is mac is None:
        return _NOTHING
    return RequestedInterface(
        address=IPv4Interface(address) if address else None,
        address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
        mac=mac,
    )


class _StoredAttachment(NamedTuple):
    """An attachment that has not been parsed; a tuple is made in a third of the time of a dataclass.

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
        args=_parse_args(document["args"]),
        capability_args=document["capabilityArgs"] or _EMPTY,
        reservation=document.get("reservation"),
        reservation_input=_parse_input(document.get("reservationInput")),
        identity=_parse_identity(document.get("identity")),
        dns=DnsOption(document["dns"]) if document.get("dns") else None,
        mode_reason=intern(document.get("modeReason") or ""),
    )


@lru_cache(maxsize=_CONFIGURATIONS)
def _parse_configuration(text: bytes) -> JsonObject:
    """Return a network configuration list; equal texts give the same object."""
    return as_object(parse_json(text), "configuration")


_NOTHING: Final = RequestedInterface()
_EMPTY: Final[JsonObject] = {}
