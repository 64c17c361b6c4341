# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Typed forms of the documents used most recently: a container's calls follow each other, and read the same ones."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, ParamSpec, TypeVar

from cni_bridge_spec import JsonObject

__all__ = ["Same", "recently"]

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
