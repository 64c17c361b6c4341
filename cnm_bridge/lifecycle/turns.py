# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A queue in which the preferred go first: somebody waits for them."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

__all__ = ["Turns"]

K = TypeVar("K", bound=Hashable)


class Turns(Generic[K]):
    """Lets a limited number of bodies run at once; the others wait, each under a key of its own.

    Args:
        limit: How many run at once.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[K, asyncio.Event] = OrderedDict()
        self._preferred: set[K] = set()

    def prefer(self, keys: Iterable[K]) -> None:
        """Let the bodies of some keys go before all others, whether they wait now or come later."""
        self._preferred.update(keys)
        for key in self._preferred & self._waiting.keys():
            self._waiting.move_to_end(key, last=False)

    @asynccontextmanager
    async def take(self, key: K) -> AsyncIterator[None]:
        """Run the body when it is the key's turn."""
        await self._wait(key)
        self._preferred.discard(key)
        try:
            yield
        finally:
            self._preferred.discard(key)  # it may have been preferred once more meanwhile
            self._release()

    async def _wait(self, key: K) -> None:
        if self._free:
            self._free -= 1
            return
        turn = self._waiting[key] = asyncio.Event()
        self._waiting.move_to_end(key, last=key not in self._preferred)
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if turn.is_set():
                self._release()
            else:
                del self._waiting[key]
            raise

    def _release(self) -> None:
        """Give a turn to the first that waits."""
        if self._waiting:
            _, turn = self._waiting.popitem(last=False)
            turn.set()
        else:
            self._free += 1
