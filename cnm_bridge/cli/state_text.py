# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders the stored state as text for a terminal. Pure."""

from collections.abc import Sequence
from ipaddress import ip_interface

from cni_bridge_spec import find_str, get_objects, get_str, render_json
from cni_bridge_state import EndpointRecord, NetworkRecord, Store
from cnm_bridge.cli.table import SHORT, table

__all__ = ["render_found", "render_overview"]


def render_overview(store: Store) -> str:
    """Return a table of networks and one of endpoints."""
    names = {network.id: network.name for network in store.networks()}
    networks = [(network.id[:SHORT], network.name or "-", _binding(network)) for network in store.networks()]
    endpoints = [
        (
            endpoint.id[:SHORT],
            names.get(endpoint.network_id) or endpoint.network_id[:SHORT],
            endpoint.phase.value,
            " ".join(_addresses(endpoint)) or "-",
            endpoint.sandbox_key or "-",
        )
        for endpoint in store.endpoints()
    ]
    return "\n\n".join(
        (
            table(("NETWORK", "NAME", "CONFIGURATION"), networks),
            table(("ENDPOINT", "NETWORK", "PHASE", "ADDRESSES", "SANDBOX"), endpoints),
        )
    )


def render_found(store: Store, prefix: str) -> str:
    """Return the records whose IDs begin with `prefix`, one JSON object per line; "" if there are none."""
    document = store.export_document()
    records = (*get_objects(document, "networks"), *get_objects(document, "endpoints"))
    return "\n".join(
        render_json(record).decode("ascii") for record in records if get_str(record, "id").startswith(prefix)
    )


def _binding(network: NetworkRecord) -> str:
    return f"{network.configuration or network.name or 'of its own name'}{', internal' if network.internal else ''}"


def _addresses(endpoint: EndpointRecord) -> Sequence[str]:
    """Return the addresses that the plugins gave; while ADD is incomplete, those of the latest result."""
    if endpoint.snapshot is not None:
        addresses = [get_str(address, "address") for address in get_objects(endpoint.snapshot, "addresses")]
        return [address for address in addresses if not ip_interface(address).is_link_local]
    return [find_str(ip, "address") or "?" for ip in get_objects(endpoint.result or {}, "ips")]
