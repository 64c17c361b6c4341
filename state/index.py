# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An in-memory index of endpoints by values in their records (addresses, sandbox).

A lookup does not scan all of them.
"""

from collections.abc import Callable, Iterable

from cni_bridge_state.records import EndpointId, EndpointRecord


class Index:
    """The endpoints by a key of their records.

    Args:
        keys_of: Gives the keys under which a record is found.
    """

    def __init__(self, keys_of: Callable[[EndpointRecord], Iterable[str]]) -> None:
        self._keys_of = keys_of
        self._found: dict[str, tuple[EndpointId, ...]] = {}  # few each: a set would take four times the memory

    def add(self, record: EndpointRecord) -> None:
        """Add a record."""
        for key in self._keys_of(record):
            self._found[key] = (*self._found.get(key, ()), record.id)

    def discard(self, record: EndpointRecord) -> None:
        """Remove a record."""
        for key in self._keys_of(record):
            found = tuple(endpoint_id for endpoint_id in self._found.pop(key, ()) if endpoint_id != record.id)
            if found:
                self._found[key] = found

    def find(self, keys: Iterable[str]) -> list[EndpointId]:
        """Return the endpoints found under any of some keys, in order."""
        return sorted({endpoint_id for key in keys for endpoint_id in self._found.get(key, ())})
