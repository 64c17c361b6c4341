# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Background work by key: at most one task for each key, which can be cancelled."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)
Work = Callable[[], Coroutine[object, object, None]]


class KeyedTasks(Generic[K]):
    """The tasks. They run while `run` does; a bug in one is logged, and ends no other.

    Args:
        name: What they do, for the log.
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
