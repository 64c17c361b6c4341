# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From stored records of an earlier schema version to those of this one; pure.

A step takes a document of one version and returns it in the next; documents are not checked here: what comes out of the
last step is held against its schema like any other. A version that was released is never changed again.
"""

from collections.abc import Callable, Mapping
from typing import Final

from spec import JsonObject, find_object, get_objects, parse_json, render_json
from spec.jsontypes import as_object

__all__ = ["MIGRATIONS", "SCHEMA_VERSION", "migrate"]

SCHEMA_VERSION: Final = 3


def migrate(key: str, value: bytes, version: int) -> bytes:
    """Return a stored value as it is in this version.

    Args:
        key: Its key, e.g. `endpoint/4f2a`.
        value: The value.
        version: The schema version that it was written in.

    Raises:
        JsonError: The value is not what that version writes.
    """
    document = as_object(parse_json(value), key)
    kind = key.partition("/")[0]
    for step in range(version, SCHEMA_VERSION):
        change = MIGRATIONS[step].get(kind)
        if change is not None:
            document = change(document)
    return render_json(document)


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
    """No plugin's DEL has completed as far as version 2 knew: an unfinished tear down began again with all of them."""
    return {**document, "deleted": []}


MIGRATIONS: Final[Mapping[int, Mapping[str, Callable[[JsonObject], JsonObject]]]] = {
    1: {"endpoint": _endpoint_1},
    2: {"endpoint": _endpoint_2},
}
"""Version → kind of record, as in its key → what leads to the next version, where it changes."""
