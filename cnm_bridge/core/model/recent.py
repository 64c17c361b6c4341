# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Typed forms of the documents used most recently: a container's calls follow each other, and read the same ones."""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, ParamSpec, TypeVar

from cni_bridge_spec import JsonObject

__all__ = ["RecentDocuments", "Same", "recently"]

Arguments = ParamSpec("Arguments")
Typed = TypeVar("Typed")

_RECENT: Final = 64
"""How many are kept of a kind. Those of all endpoints would take several times the memory of their texts."""


class Same:
    """A document as a key: equal only to itself, because comparing documents takes as long as reading them.

    The store gives the same object for the same text (`cni_bridge_state.lazy_field`). Such objects are never changed.
    """

    __slots__ = ("document",)

    def __init__(self, document: JsonObject) -> None:
        self.document = document

    def __hash__(self) -> int:
        return id(self.document)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.document is self.document


def recently(read: Callable[Arguments, Typed]) -> Callable[Arguments, Typed]:
    """Decorate a pure function so that it remembers what it returned for its most recent arguments."""
    remembered: Callable[Arguments, Typed] = lru_cache(maxsize=_RECENT)(read)  # type: ignore[assignment]
    return remembered


class RecentDocuments(Generic[Typed]):
    """Reads documents of one kind, and remembers the typed forms of the most recent ones.

    Args:
        read: A pure function that returns the typed form of a document.
    """

    def __init__(self, read: Callable[[JsonObject], Typed]) -> None:
        self._read = read
        self._known: OrderedDict[Same, Typed] = OrderedDict()

    def typed(self, document: JsonObject) -> Typed:
        """Return the typed form of a document."""
        key = Same(document)
        known = self._known.get(key)
        if known is None:
            known = self._read(document)
            self.note(document, known)
        else:
            self._known.move_to_end(key)
        return known

    def note(self, document: JsonObject, typed: Typed) -> None:
        """Remember the typed form of a document that was made from it."""
        self._known[Same(document)] = typed
        while len(self._known) > _RECENT:
            self._known.popitem(last=False)
