# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders the exported state (`spec/state/export.json`) as text for a terminal. Pure."""

from collections.abc import Sequence
from ipaddress import ip_interface

from cni_bridge_spec import JsonObject, find_object, find_str, get_bool, get_objects, get_str
from cnm_bridge.operator.cli.output.table import SHORT, table

__all__ = ["find_records", "render_overview"]


def render_overview(document: JsonObject) -> str:
    """Return a table of networks and one of endpoints."""
    found = get_objects(document, "networks")
    names = {get_str(network, "id"): find_str(network, "name") for network in found}
    networks = [(get_str(one, "id")[:SHORT], find_str(one, "name") or "-", _binding(one)) for one in found]
    endpoints = [
        (
            get_str(one, "id")[:SHORT],
            names.get(get_str(one, "networkId")) or get_str(one, "networkId")[:SHORT],
            get_str(one, "phase"),
            " ".join(_addresses(one)) or "-",
            find_str(one, "sandboxKey") or "-",
        )
        for one in get_objects(document, "endpoints")
    ]
    return "\n\n".join(
        (
            table(("NETWORK", "NAME", "CONFIGURATION"), networks),
            table(("ENDPOINT", "NETWORK", "PHASE", "ADDRESSES", "SANDBOX"), endpoints),
        )
    )


def find_records(document: JsonObject, prefix: str) -> Sequence[JsonObject]:
    """Return the records whose IDs begin with `prefix`."""
    records = (*get_objects(document, "networks"), *get_objects(document, "endpoints"))
    return tuple(record for record in records if get_str(record, "id").startswith(prefix))


def _binding(network: JsonObject) -> str:
    internal = ", internal" if get_bool(network, "internal") else ""
    return f"{find_str(network, 'configuration') or find_str(network, 'name') or 'of its own name'}{internal}"


def _addresses(endpoint: JsonObject) -> Sequence[str]:
    """Return the addresses that the plugins gave; while ADD is incomplete, those of the latest result."""
    snapshot = find_object(endpoint, "snapshot")
    if snapshot is not None:
        addresses = [get_str(address, "address") for address in get_objects(snapshot, "addresses")]
        return [address for address in addresses if not ip_interface(address).is_link_local]
    result = find_object(endpoint, "result") or {}
    return [find_str(ip, "address") or "?" for ip in get_objects(result, "ips")] if "ips" in result else []
