# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts between a network record and its stored value; pure."""

from ipaddress import ip_address, ip_network
from typing import Final

from cni_bridge_spec import (
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_bool,
    get_int,
    get_object,
    get_objects,
    get_str,
    parse_json,
    render_json,
)
from cni_bridge_state.errors import RecordDamaged
from cni_bridge_state.records import NetworkId, NetworkRecord, PoolRecord, ProcessRecord
from cni_bridge_state.stored_value import RECORD_LINE, check_lines, join_lines, line_of, own_id

__all__ = ["NETWORK_LINES", "parse_network", "render_network"]

NETWORK_LINES: Final = 2
"""How many lines a stored network has."""


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
        "engine": record.engine,
        "caller": None if record.caller is None else {"pid": record.caller.pid, "started": record.caller.started},
    }
    return join_lines([render_json(document)])


def parse_network(key: str, value: bytes) -> NetworkRecord:
    """Return the network record stored under `key`.

    Raises:
        RecordDamaged: The value is not a network record.
    """
    check_lines(key, value, NETWORK_LINES)
    try:
        document = as_object(parse_json(line_of(value, RECORD_LINE)), key)
        options = get_object(document, "options")
        return NetworkRecord(
            id=NetworkId(own_id(key, get_str(document, "id"))),
            configuration=find_str(document, "configuration"),
            name=find_str(document, "name"),
            internal=get_bool(document, "internal"),
            options={name: get_str(options, name) for name in options},
            pools=tuple(map(_parse_pool, get_objects(document, "pools"))),
            engine=find_str(document, "engine"),
            caller=_parse_process(find_object(document, "caller")),
        )
    except ValueError as exc:  # JsonError among them, and an address that is none
        raise RecordDamaged(key, exc) from exc


def _parse_process(document: JsonObject | None) -> ProcessRecord | None:
    if document is None:
        return None
    return ProcessRecord(pid=get_int(document, "pid"), started=get_int(document, "started"))


def _parse_pool(document: JsonObject) -> PoolRecord:
    gateway = find_str(document, "gateway")
    return PoolRecord(subnet=ip_network(get_str(document, "subnet")), gateway=ip_address(gateway) if gateway else None)
