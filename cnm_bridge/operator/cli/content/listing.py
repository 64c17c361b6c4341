# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of `cni-bridge ls`. Pure but for the time."""

import time
from collections import Counter
from difflib import get_close_matches
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_int, find_str, get_objects, get_str, get_strings
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.containers import Inventory
from cnm_bridge.operator.cli.content.port_text import ports_text
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.shown import Shown, Table
from cnm_bridge.operator.cli.output.table import changed_text

__all__ = ["age", "show_endpoints", "show_networks", "with_container"]

_UNKNOWN: Final = "?"
_ENDPOINTS: Final = (
    *(("CONTAINER", "container"), ("IMAGE", "image"), ("NETWORK", "network"), ("ADDRESSES", "addresses")),
    *(("MAC", "mac"), ("PORTS", "ports"), ("MODE", "mode"), ("AGE", "age"), ("PHASE", "phase"), ("ENDPOINT", "id")),
)
_OPTIONAL: Final = ("id", "mac", "image", "age", "mode", "phase", "ports")
_NETWORKS: Final = (
    *(("NETWORK", "id"), ("NAME", "name"), ("CONFIGURATION", "configuration"), ("INTERNAL", "internal")),
    ("ENDPOINTS", "endpoints"),
    ("CHANGED", "changed"),
)
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def show_endpoints(inventory: Inventory, network: str | None) -> Shown:
    """Return the table of endpoints, of one network if it is given.

    Raises:
        DaemonError: There is no such network.
    """
    network_id = None if network is None else _find_network(inventory, network)
    found = [
        one
        for one in get_objects(inventory.document, "endpoints")
        if network_id is None or get_str(one, "networkId") == network_id
    ]
    rows = [_row(one, inventory) for one in found]
    rows.sort(key=lambda row: (str(row["container"]), str(row["network"])))
    document: JsonObject = {
        "networks": [*get_objects(inventory.document, "networks")],
        "endpoints": [with_container(one, inventory) for one in found],
    }
    return Shown(
        document=document,
        rows=rows,
        parts=[Table(columns=_ENDPOINTS, rows=rows, optional=_OPTIONAL)],
        notes=inventory.notes,
    )


def show_networks(inventory: Inventory, network: str | None) -> Shown:
    """Return the table of networks, or one of them; errors as in `show_endpoints`."""
    wanted = None if network is None else _find_network(inventory, network)
    counts = Counter(get_str(one, "networkId") for one in get_objects(inventory.document, "endpoints"))
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
    return Shown(document={"networks": [*rows]}, rows=rows, parts=[Table(columns=_NETWORKS, rows=rows)])


def with_container(endpoint: JsonObject, inventory: Inventory) -> JsonObject:
    """Return a document of an endpoint with its network's name and its container.

    The container is null if there is none, or if the engine does not answer.
    """
    container = inventory.containers.get(get_str(endpoint, "id"))
    shown: JsonValue = None
    if container is not None:
        shown = {"id": container.id, "name": container.name, "image": container.image, "state": container.state}
    named = {"networkName": inventory.networks.get(get_str(endpoint, "networkId"))}
    return {**endpoint, **named, "container": shown}


def age(created_at: int | None) -> str:
    """Return how long ago a time was, e.g. `3h`."""
    if created_at is None:
        return _UNKNOWN
    seconds = max(0, int(time.time()) - created_at)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def _row(endpoint: JsonObject, inventory: Inventory) -> JsonObject:
    container = inventory.containers.get(get_str(endpoint, "id"))
    network_id = get_str(endpoint, "networkId")
    return {
        "container": container.name if container else _UNKNOWN,
        "image": container.image if container else _UNKNOWN,
        "network": inventory.networks.get(network_id, network_id),
        "addresses": " ".join(get_strings(endpoint, "addresses")),
        "mac": find_str(endpoint, "mac"),
        "ports": ports_text(get_objects(endpoint, "ports")) or _not_published(endpoint),
        "mode": get_str(endpoint, "mode"),
        "age": age(find_int(endpoint, "createdAt")),
        "phase": get_str(endpoint, "phase"),
        "id": get_str(endpoint, "id"),
    }


def _not_published(endpoint: JsonObject) -> str:
    return "not published" if find_str(endpoint, "notPublished") else ""


def _find_network(inventory: Inventory, name: str) -> str:
    networks = inventory.networks
    found = [one for one, known in networks.items() if known == name]
    found = found or [one for one in networks if one.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DaemonError(f"network {name} is ambiguous: {', '.join(found)}", ExitStatus.USAGE)
    near = get_close_matches(name, networks.values(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`cni-bridge ls --networks` shows all"
    raise DaemonError(f"no network {name} of cni-bridge; {hint}", ExitStatus.USAGE)
