# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of all records: which field is under which name in its document, and in which form; pure."""

from collections.abc import Mapping
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, get_object, get_objects, get_str
from cni_bridge_state.address_records import (
    AddressPhase,
    AddressPoolRecord,
    AddressRecord,
    AddressUse,
    ReservationRecord,
)
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
    PoolRecord,
    {
        "subnet": ("subnet", converted(ip_network)),
        "gateway": ("gateway", optional(converted(ip_address))),
        "is_own": ("isOwn", FLAG),
    },
)
NETWORK: Final = Fields(
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
ENDPOINT: Final = Fields(
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
ADDRESS_POOL: Final = Fields(
    AddressPoolRecord,
    {
        "id": ("id", TEXT),
        "section": ("section", TEXT),
        "subnet": ("subnet", converted(ip_network)),
        "sub_pool": ("subPool", optional(converted(ip_network))),
        "gateway": ("gateway", optional(converted(ip_address))),
        "caller": ("caller", optional(_PROCESS.one)),
        "engine": ("engine", optional(TEXT)),
        "created_at": ("createdAt", WHOLE),
    },
)
_RESERVATION: Final = Fields(
    ReservationRecord,
    {
        "netns": ("netns", TEXT),
        "configuration": ("configuration", DOCUMENT),
        "args": ("args", _ARGS),
        "capability_args": ("capabilityArgs", DOCUMENT),
        "result": ("result", optional(DOCUMENT)),
    },
)
ADDRESS: Final = Fields(
    AddressRecord,
    {
        "id": ("id", TEXT),
        "pool": ("pool", TEXT),
        "section": ("section", TEXT),
        "phase": ("phase", one_of(AddressPhase)),
        "use": ("use", one_of(AddressUse)),
        "address": ("address", optional(converted(ip_interface))),
        "name": ("name", optional(TEXT)),
        "reservation": ("reservation", optional(_RESERVATION.one)),
        "created_at": ("createdAt", WHOLE),
    },
)
