# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge ls`: lists the endpoints with their containers, or the networks."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_int, find_object, find_str, get_objects, get_str, get_strings
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.containers import Inventory, dynamic_addresses, take_inventory
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.output import SHORT, UNKNOWN, Shown, Table, age, changed_text, ports_text, shows
from cnm_bridge.operator.cli.tree import draw_tree

_DYNAMIC: Final = ("DYNAMIC", "dynamic")
_KEY: Final = ("KEY", "key")
_WHERE_NEEDED: Final = (_DYNAMIC, _KEY)
"""Columns that are shown if any endpoint has something in them."""
_ENDPOINTS: Final = (
    *(("CONTAINER", "container"), ("IMAGE", "image"), ("NETWORK", "network"), ("ADDRESSES", "addresses")),
    *_WHERE_NEEDED,
    *(("MAC", "mac"), ("PORTS", "ports"), ("MODE", "mode"), ("AGE", "age"), ("PHASE", "phase"), ("ENDPOINT", "id")),
)
_OPTIONAL: Final = ("id", "mac", "image", "age", "mode", "phase", "ports")
_OPTIONAL_OF_NETWORKS: Final = ("internal", "id")
_NETWORKS: Final = (
    *(("NETWORK", "id"), ("NAME", "name"), ("CONFIGURATION", "configuration"), ("INTERNAL", "internal")),
    ("ENDPOINTS", "endpoints"),
    ("CHANGED", "changed"),
)


@click.command(
    "ls",
    cls=Command,
    examples=("ls", "ls blue", "ls --networks", "ls --tree", "ls --json"),
)
@click.option("--networks", is_flag=True, help="List the networks.")
@click.option("--tree", is_flag=True, help="Draw the host, its links, and the containers behind each.")
@click.argument("network", required=False)
@asks_daemon("docker_host")
@shows
def ls(settings: Settings, *, networks: bool, tree: bool, network: str | None) -> tuple[Shown, ExitStatus]:
    """List containers on networks of cni-bridge, with addresses and published ports; with NETWORK, those on it.

    Names and images come from the Docker Engine; without an answer of the engine they are "?". Addresses that the
    kernel has learnt, such as from router advertisements, are in the column DYNAMIC.
    """
    if tree and networks:
        raise click.UsageError("--tree draws networks with their containers; leave --networks out")
    inventory = take_inventory(AdminClient(settings.admin_path), settings.docker_host, dynamic=not networks)
    show = show_networks if networks else show_tree if tree else show_endpoints
    return show(inventory, network), ExitStatus.FINE


def show_endpoints(inventory: Inventory, network: str | None) -> Shown:
    """Return the table of endpoints, of one network if it is given.

    Raises:
        UnknownName: There is no such network.
    """
    network_id = None if network is None else inventory.find_network(network)
    found = _endpoints(inventory, network_id)
    rows = [_row(one, inventory) for one in found]
    rows.sort(key=lambda row: (str(row["container"]), str(row["network"])))
    columns = [one for one in _ENDPOINTS if one not in _WHERE_NEEDED or any(row[one[1]] for row in rows)]
    return Shown(
        document=_document(inventory, found),
        parts=[Table(columns=columns, rows=rows, optional=_OPTIONAL)],
        notes=inventory.notes,
    )


def show_tree(inventory: Inventory, network: str | None) -> Shown:
    """Return the picture of all networks, or of one of them; errors as in `show_endpoints`."""
    network_id = None if network is None else inventory.find_network(network)
    return Shown(
        document=_document(inventory, _endpoints(inventory, network_id)),
        parts=[draw_tree(inventory, network_id)],
        notes=inventory.notes,
    )


def show_networks(inventory: Inventory, network: str | None) -> Shown:
    """Return the table of networks, or one of them; errors as in `show_endpoints`."""
    wanted = None if network is None else inventory.find_network(network)
    counts = Counter(get_str(endpoint, "networkId") for endpoint in get_objects(inventory.document, "endpoints"))
    rows: list[JsonObject] = [
        {
            **one,
            "changed": changed_text(one),
            "name": inventory.networks[get_str(one, "id")],
            "endpoints": counts[get_str(one, "id")],
        }
        for one in get_objects(inventory.document, "networks")
        if wanted in {None, get_str(one, "id")}
    ]
    return Shown(
        document={"networks": [*rows]},
        parts=[Table(columns=_NETWORKS, rows=rows, optional=_OPTIONAL_OF_NETWORKS)],
    )


def _endpoints(inventory: Inventory, network_id: str | None) -> Sequence[JsonObject]:
    """Return the endpoints, of one network if it is given."""
    endpoints = get_objects(inventory.document, "endpoints")
    return [endpoint for endpoint in endpoints if network_id in {None, get_str(endpoint, "networkId")}]


def _document(inventory: Inventory, endpoints: Sequence[JsonObject]) -> JsonObject:
    return {
        "networks": [*inventory.network_documents],
        "endpoints": [inventory.with_container(endpoint) for endpoint in endpoints],
    }


def _row(endpoint: JsonObject, inventory: Inventory) -> JsonObject:
    container = inventory.containers.get(get_str(endpoint, "id"))
    network_id = get_str(endpoint, "networkId")
    return {
        "container": container.name if container else UNKNOWN,
        "image": container.image if container else UNKNOWN,
        "network": inventory.networks.get(network_id, network_id[:SHORT]),
        "addresses": " ".join(get_strings(endpoint, "addresses")),
        "dynamic": " ".join(dynamic_addresses(endpoint)),
        "key": _key(endpoint),
        "mac": find_str(endpoint, "mac"),
        "ports": ports_text(get_objects(endpoint, "ports")) or (find_str(endpoint, "notPublished") and "not published"),
        "mode": get_str(endpoint, "mode"),
        "age": age(find_int(endpoint, "createdAt")),
        "phase": get_str(endpoint, "phase"),
        "id": get_str(endpoint, "id"),
    }


def _key(endpoint: JsonObject) -> str:
    """Return the key of a container, and which of its last addresses another one has, e.g. `web (not 10.1.2.3)`."""
    sticky = find_object(endpoint, "sticky") or {}
    missed = " ".join(get_strings(sticky, "missed"))
    return f"{find_str(sticky, 'key') or ''}{f' (not {missed})' if missed else ''}"
