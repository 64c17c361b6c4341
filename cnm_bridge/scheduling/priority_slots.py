# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A semaphore with priorities: work on which a Docker call is waiting goes first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

__all__ = ["PrioritySlots"]

K = TypeVar("K", bound=Hashable)


class _Turn:
    """A waiting or running body.

    Attributes:
        given: Set when it may run.
        is_for_preferred: Whether it uses one of the slots reserved for preferred keys.
    """

    def __init__(self) -> None:
        self.given = asyncio.Event()
        self.is_for_preferred = False


class PrioritySlots(Generic[K]):
    """Limits the number of bodies that run concurrently; the others wait, each under its own key.

    Args:
        limit: Number of slots.
        for_preferred: Number of additional slots, for preferred keys only.
    """

    def __init__(self, limit: int, *, for_preferred: int = 0) -> None:
        self._free = limit
        self._free_for_preferred = for_preferred
        self._waiting: OrderedDict[K, _Turn] = OrderedDict()
        self._preferred: set[K] = set()

    def prefer(self, keys: Iterable[K]) -> None:
        """Move the waiting bodies of these keys to the front."""
        waiting = self._waiting.keys() & frozenset(keys)
        self._preferred |= waiting
        for key in waiting:
            self._waiting.move_to_end(key, last=False)
        self._give()

    @asynccontextmanager
    async def take(self, key: K, *, preferred: bool = False) -> AsyncIterator[None]:
        """Run the body as soon as a slot is free; a preferred key goes first."""
        turn = self._waiting[key] = _Turn()
        if preferred:
            self.prefer((key,))
        else:
            self._give()
        try:
            await turn.given.wait()
            yield
        finally:
            if turn.given.is_set():
                self._take_back(turn)
            else:
                del self._waiting[key]
                self._preferred.discard(key)

    def _give(self) -> None:
        """Grant free slots to the first waiters."""
        while self._waiting:
            key, turn = next(iter(self._waiting.items()))
            if self._free:
                self._free -= 1
            elif key in self._preferred and self._free_for_preferred:
                self._free_for_preferred -= 1
                turn.is_for_preferred = True
            else:
                return
            del self._waiting[key]
            self._preferred.discard(key)
            turn.given.set()

    def _take_back(self, turn: _Turn) -> None:
        if turn.is_for_preferred:
            self._free_for_preferred += 1
        else:
            self._free += 1
        self._give()
