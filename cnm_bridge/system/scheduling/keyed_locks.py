# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One lock per key, created on demand and dropped when free."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class KeyedLocks(Generic[K]):
    """Serialises work for the same key; work for different keys runs concurrently.

    Lock contract: a holder takes no second key, so there is no deadlock. One exception: an attempt to create or join an
    endpoint (`driver/endpoints/attempts.py`) may wait for teardowns of other endpoints and request others. That cannot
    deadlock either, because a teardown waits for no other endpoint, and an attempt never waits for its own: a failed
    attempt only begins its undo under the lock, and waits for it, and for other endpoints, after releasing the lock.
    """

    def __init__(self) -> None:
        self._locks: dict[K, asyncio.Lock] = {}
        self._users: dict[K, int] = {}

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`; waiters receive it in the order of their calls."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] = self._users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
