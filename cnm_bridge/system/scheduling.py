# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks and tasks by key, and pauses in long work. Does not know networks or endpoints."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

log = structlog.get_logger()

_SLICE_S: Final = 0.002
"""Short, because another call needs about ten turns of the event loop and each may have to wait for a slice."""

K = TypeVar("K", bound=Hashable)
Work = Callable[[], Coroutine[object, object, None]]


class KeyedLocks(Generic[K]):
    """One lock per key, created on demand and dropped when free.

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


class KeyedTasks(Generic[K]):
    """At most one task for each key, which can be cancelled.

    They run while `run` does; a bug in one is logged, and ends no other.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._wanted: asyncio.Queue[tuple[K, Work]] = asyncio.Queue()

    def begin(self, key: K, work: Work) -> None:
        """Begin the work for a key soon, in place of an earlier one; does not block."""
        self._wanted.put_nowait((key, work))

    def cancel(self, key: K) -> None:
        """Cancel the work for a key that has begun, unless it is the caller; does not block."""
        task = self._tasks.get(key)
        if task is not None and task is not asyncio.current_task():
            del self._tasks[key]
            task.cancel()

    async def run(self) -> None:
        """Run all work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                key, work = await self._wanted.get()
                self.cancel(key)
                task = self._tasks[key] = tasks.create_task(self._guarded(key, work))
                task.add_done_callback(partial(self._end, key))

    async def _guarded(self, key: K, work: Work) -> None:
        try:
            await work()
        except Exception:
            log.exception("background.bug", work=self._name, key=key)

    def _end(self, key: K, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]


class TimeSlice:
    """Divides long work into small slices, so that it does not block the event loop.

    A pause costs almost nothing until the slice is used up.
    """

    def __init__(self) -> None:
        self._end = time.monotonic() + _SLICE_S

    async def pause(self) -> None:
        """Let other tasks run if the slice is used up; call it between the steps of the work."""
        if time.monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + _SLICE_S
