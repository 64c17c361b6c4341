# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From stored records of an earlier schema version to those of this one; pure.

A step takes a document of one version and returns it in the next; documents are not checked here: what comes out of the
last step is held against its schema like any other. A version that was released is never changed again.

Up to version 2 the stored value was the text of the document.
"""

from collections.abc import Callable, Mapping
from ipaddress import ip_interface
from typing import Final

from spec import JsonObject, JsonValue, as_object, find_object, get_int, get_object, get_objects, get_str

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "migrate"]

SCHEMA_VERSION: Final = 3

_SCOPE_LINK: Final = 253


def migrate(key: str, document: JsonValue, version: int) -> JsonObject:
    """Return a record as it is in this version.

    Args:
        key: Its key, e.g. `endpoint/4f2a`.
        document: The record.
        version: The schema version that it was written in.

    Raises:
        ValueError: The document is not what that version writes; a `JsonError` where a key is of another type.
    """
    current = as_object(document, key)
    kind = key.partition("/")[0]
    for step in range(version, SCHEMA_VERSION):
        change = MIGRATIONS[step].get(kind)
        if change is not None:
            current = change(current)
    return current


def _endpoint_1(document: JsonObject) -> JsonObject:
    """Snapshots hold all that is settled: nothing more was known of what an earlier version made."""
    snapshot = find_object(document, "snapshot")
    if snapshot is None:
        return document
    of_address: JsonObject = {"broadcast": None, "metric": None, "label": None}
    addresses = [{**address, **of_address} for address in get_objects(snapshot, "addresses")]
    further: JsonObject = {"rules": [], "neighbours": [], "sysctls": [], "qdisc": None}
    return {**document, "snapshot": {**snapshot, "addresses": addresses, **further}}


def _endpoint_2(document: JsonObject) -> JsonObject:
    """What version 2 did not know.

    No plugin's DEL has completed as far as that version knew: an unfinished tear down began again with all of them.
    Addresses are stored by themselves: those that the plugins told, and those that they gave to the link.
    CNI's container ID was the endpoint's ID, and libnetwork moved every link into its sandbox.
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
