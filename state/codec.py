# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records to stored bytes and back, pure.

A stored value is the JSON text of a document that fits `spec/state/network.json` or `spec/state/endpoint.json`; both
are closed: a key that this version does not know means damage, not tolerance. `check_value` holds a value against its
schema. That costs a millisecond, so it is done once, with what an earlier life of the daemon has left; what this one
writes itself it reads back without.
"""

from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network

from spec import (
    JsonError,
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_bool,
    get_int,
    get_ints,
    get_object,
    get_objects,
    get_str,
    load_validator,
    parse_json,
    render_json,
)
from state.errors import RecordDamaged
from state.phases import Phase
from state.records import (
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    PoolRecord,
    ProcessRecord,
    RequestedInterface,
)

__all__ = ["check_record", "check_value", "parse_endpoint", "parse_network", "render_endpoint", "render_network"]


def check_value(schema: str, key: str, value: bytes) -> None:
    """Hold the value stored under `key` against its schema, e.g. `state/endpoint`.

    Raises:
        RecordDamaged: It does not fit.
    """
    try:
        load_validator(schema)(parse_json(value))
    except JsonError as exc:
        raise RecordDamaged(key, exc) from exc


def check_record(key: str, value: bytes) -> None:
    """Hold the value stored under `network/<id>` or `endpoint/<id>` against all that it must be.

    Raises:
        RecordDamaged: It does not fit its schema, cannot be read, or is the record of another key.
    """
    kind, _, name = key.partition("/")
    check_value(f"state/{kind}", key, value)
    record = parse_network(key, value) if kind == "network" else parse_endpoint(key, value)
    if record.id != name:
        raise RecordDamaged(key, f"it is the record of {record.id}")


def render_network(record: NetworkRecord) -> bytes:
    """Return the stored form of a network record."""
    return render_json(
        {
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
    )


def parse_network(key: str, value: bytes) -> NetworkRecord:
    """Return the network record stored under `key`.

    Raises:
        RecordDamaged: The value is no network record.
    """
    try:
        document = as_object(parse_json(value), key)
        options = get_object(document, "options")
        return NetworkRecord(
            id=NetworkId(get_str(document, "id")),
            configuration=find_str(document, "configuration"),
            name=find_str(document, "name"),
            internal=get_bool(document, "internal"),
            options={name: get_str(options, name) for name in options},
            pools=tuple(map(_parse_pool, get_objects(document, "pools"))),
        )
    except ValueError as exc:  # JsonError among them, and an address that is none
        raise RecordDamaged(key, exc) from exc


def render_endpoint(record: EndpointRecord) -> bytes:
    """Return the stored form of an endpoint record."""
    attachment = record.attachment
    requested = record.requested
    caller = record.caller
    return render_json(
        {
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
            "attachment": {
                "ifname": attachment.ifname,
                "netns": attachment.netns,
                "configuration": attachment.configuration,
                "cniVersion": attachment.cni_version,
                "args": [{"key": key, "value": value} for key, value in attachment.args],
                "capabilityArgs": attachment.capability_args,
            },
            "answered": record.answered,
            "deleted": [*record.deleted],
            "result": record.result,
            "snapshot": record.snapshot,
            "sandboxKey": record.sandbox_key,
            "ifnamePrefix": record.ifname_prefix,
            "caller": {"pid": caller.pid, "started": caller.started} if caller else None,
        }
    )


def parse_endpoint(key: str, value: bytes) -> EndpointRecord:
    """Return the endpoint record stored under `key`.

    Raises:
        RecordDamaged: The value is no endpoint record.
    """
    try:
        document = as_object(parse_json(value), key)
        return EndpointRecord(
            id=EndpointId(get_str(document, "id")),
            network_id=NetworkId(get_str(document, "networkId")),
            phase=Phase(get_str(document, "phase")),
            boot_id=get_str(document, "bootId"),
            internal=get_bool(document, "internal"),
            requested=_parse_requested(get_object(document, "requested")),
            attachment=_parse_attachment(get_object(document, "attachment")),
            answered=get_int(document, "answered"),
            deleted=get_ints(document, "deleted"),
            result=find_object(document, "result"),
            snapshot=find_object(document, "snapshot"),
            sandbox_key=find_str(document, "sandboxKey"),
            ifname_prefix=find_str(document, "ifnamePrefix") or "eth",
            caller=_parse_process(find_object(document, "caller")),
        )
    except ValueError as exc:  # JsonError among them, and an address that is none
        raise RecordDamaged(key, exc) from exc


def _parse_pool(document: JsonObject) -> PoolRecord:
    gateway = find_str(document, "gateway")
    return PoolRecord(subnet=ip_network(get_str(document, "subnet")), gateway=ip_address(gateway) if gateway else None)


def _parse_process(document: JsonObject | None) -> ProcessRecord | None:
    return ProcessRecord(pid=get_int(document, "pid"), started=get_int(document, "started")) if document else None


def _parse_requested(document: JsonObject) -> RequestedInterface:
    address = find_str(document, "address")
    address_ipv6 = find_str(document, "addressIPv6")
    return RequestedInterface(
        address=IPv4Interface(address) if address else None,
        address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
        mac=find_str(document, "mac"),
    )


def _parse_attachment(document: JsonObject) -> AttachmentRecord:
    return AttachmentRecord(
        ifname=get_str(document, "ifname"),
        netns=get_str(document, "netns"),
        configuration=get_object(document, "configuration"),
        cni_version=get_str(document, "cniVersion"),
        args=tuple((get_str(arg, "key"), get_str(arg, "value")) for arg in get_objects(document, "args")),
        capability_args=get_object(document, "capabilityArgs"),
    )
