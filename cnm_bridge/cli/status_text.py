# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders the daemon's status as text for a terminal. Pure."""

from cni_bridge_spec import JsonObject, find_str, get_bool, get_int, get_list, get_object, get_objects, get_str
from cnm_bridge.cli.table import SHORT, table

__all__ = ["render_status"]


def render_status(status: JsonObject) -> str:
    """Return a line about the engine, a table of networks and one of endpoints.

    Pending teardowns, unpublished ports and orphans have tables if there are any.

    Args:
        status: The document that `cnm_bridge.status_report` describes.
    """
    networks = get_objects(status, "networks")
    names = {get_str(n, "id"): find_str(n, "name") or get_str(n, "id")[:SHORT] for n in networks}
    parts = [
        f"engine  {'up' if get_bool(get_object(status, 'engine'), 'isUp') else 'away'}",
        table(
            ("NETWORK", "NAME", "CONFIGURATION"),
            [
                (get_str(n, "id")[:SHORT], find_str(n, "name") or "-", find_str(n, "configuration") or "-")
                for n in networks
            ],
        ),
        table(
            ("ENDPOINT", "NETWORK", "PHASE", "MODE", "ADDRESSES"),
            [
                (
                    get_str(endpoint, "id")[:SHORT],
                    names.get(get_str(endpoint, "networkId"), "-"),
                    get_str(endpoint, "phase"),
                    get_str(endpoint, "mode"),
                    " ".join(str(address) for address in get_list(endpoint, "addresses")) or "-",
                )
                for endpoint in get_objects(status, "endpoints")
            ],
        ),
    ]
    teardowns = [
        (get_str(one, "endpointId")[:SHORT], str(get_int(one, "attempts")), find_str(one, "error") or "-")
        for one in get_objects(status, "pendingTeardowns")
    ]
    if teardowns:
        parts.append(table(("PENDING TEARDOWN", "ATTEMPTS", "LAST ERROR"), teardowns))
    not_published = [
        (get_str(endpoint, "id")[:SHORT], names.get(get_str(endpoint, "networkId"), "-"), reason)
        for endpoint in get_objects(status, "endpoints")
        if (reason := find_str(endpoint, "notPublished"))
    ]
    if not_published:
        parts.append(table(("PORTS NOT PUBLISHED", "NETWORK", "WHY"), not_published))
    orphans = [
        (get_str(one, "network"), get_str(one, "containerId")[:SHORT], get_str(one, "what"))
        for one in get_objects(status, "orphans")
    ]
    if orphans:
        parts.append(table(("ORPHAN ON", "CONTAINER ID", "WHAT"), orphans))
    return "\n\n".join(parts)
