# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Migrates records of earlier schema versions to the current one; pure.

A step converts a document from one version to the next. Documents are not validated here. A released version never
changes again.

Up to version 2 the stored value was the text of the document.
"""

from collections.abc import Callable, Mapping
from ipaddress import ip_interface
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_object, get_int, get_object, get_objects, get_str

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "migrate"]

SCHEMA_VERSION: Final = 3

_SCOPE_LINK: Final = 253


def migrate(key: str, document: JsonValue, version: int) -> JsonObject:
    """Return a record in the current version.

    Args:
        key: Its key, e.g. `endpoint/4f2a`.
        document: The record.
        version: The schema version that it was written in.

    Raises:
        ValueError: The document is not a record of that version; a `JsonError` if a key has another type.
    """
    current = as_object(document, key)
    kind = key.partition("/")[0]
    for step in range(version, SCHEMA_VERSION):
        change = MIGRATIONS[step].get(kind)
        if change is not None:
            current = change(current)
    return current


def _endpoint_1(document: JsonObject) -> JsonObject:
    """Add the fields that snapshots got in version 2, empty because version 1 did not capture them."""
    snapshot = find_object(document, "snapshot")
    if snapshot is None:
        return document
    of_address: JsonObject = {"broadcast": None, "metric": None, "label": None}
    addresses = [{**address, **of_address} for address in get_objects(snapshot, "addresses")]
    further: JsonObject = {"rules": [], "neighbours": [], "sysctls": [], "qdisc": None}
    return {**document, "snapshot": {**snapshot, "addresses": addresses, **further}}


def _endpoint_2(document: JsonObject) -> JsonObject:
    """Add the fields of version 3.

    `deleted` is empty, because version 2 restarted an unfinished teardown with all plugins. `addresses` are those in
    the result and those on the link. The attachment's ID was the endpoint's ID, and libnetwork moved every link into
    its sandbox.
    """
    told = get_objects(find_object(document, "result") or {}, "ips")
    given = get_objects(find_object(document, "snapshot") or {}, "addresses")
    found = [get_str(ip, "address") for ip in told]
    found += [get_str(address, "address") for address in given if get_int(address, "scope") != _SCOPE_LINK]
    addresses = list(dict.fromkeys(str(ip_interface(address).ip) for address in found))
    attachment: JsonObject = {
        **get_object(document, "attachment"),
        "id": get_str(document, "id"),
        "mode": "move",
    }
    return {**document, "deleted": [], "addresses": addresses, "attachment": attachment}


MIGRATIONS: Final[Mapping[int, Mapping[str, Callable[[JsonObject], JsonObject]]]] = {
    1: {"endpoint": _endpoint_1},
    2: {"endpoint": _endpoint_2},
}
"""Version → kind of record, as in its key → what leads to the next version, where it changes."""
