# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An in-memory index of records by values in them (addresses, sandbox, pool), so that a look-up does not scan all."""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

R = TypeVar("R")


class Index(Generic[R]):
    """Records by a key in them.

    Args:
        keys_of: Gives the keys under which a record is found.
    """

    def __init__(self, keys_of: Callable[[R], Iterable[Hashable]]) -> None:
        self._keys_of = keys_of
        self._found: dict[Hashable, tuple[R, ...]] = {}  # few each: a set would take four times the memory

    def add(self, record: R) -> None:
        """Add a record."""
        for key in self._keys_of(record):
            self._found[key] = (*self._found.get(key, ()), record)

    def discard(self, record: R) -> None:
        """Remove a record."""
        for key in self._keys_of(record):
            found = tuple(one for one in self._found.pop(key, ()) if one is not record)
            if found:
                self._found[key] = found

    def find(self, *keys: Hashable) -> tuple[R, ...]:
        """Return the records found under any of some keys, each once; those of one key in the order of `add`."""
        return tuple({id(one): one for key in keys for one in self._found.get(key, ())}.values())
