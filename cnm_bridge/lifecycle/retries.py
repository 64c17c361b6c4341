# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Does something for each of many keys until it succeeds, with longer and longer pauses between."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import structlog

__all__ = ["Retries"]

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


class _Progress:
    """How far one key has come.

    Attributes:
        attempts: How many there were.
        tried: Set after the first attempt, and when there is nothing left to try.
        again: Set when it is wanted once more.
        done: Set after the attempt that succeeded.
    """

    def __init__(self) -> None:
        self.attempts = 0
        self.tried = asyncio.Event()
        self.again = asyncio.Event()
        self.done = asyncio.Event()


class Retries(Generic[K]):
    """Attempts in the background, one task for each key, in `run`.

    Args:
        attempt: Does it once; returns whether nothing is left to do. What it raises is logged, and counts as "not yet".
        first_pause_s: The pause after the first attempt; it doubles with each.
        longest_pause_s: No pause is longer.
        on_attempt: Called after each attempt, when `attempts` tells of it.
    """

    def __init__(
        self,
        attempt: Callable[[K], Awaitable[bool]],
        *,
        first_pause_s: float,
        longest_pause_s: float,
        on_attempt: Callable[[], None] = lambda: None,
    ) -> None:
        self._attempt = attempt
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._on_attempt = on_attempt
        self._wanted: asyncio.Queue[K] = asyncio.Queue()
        self._progress: dict[K, _Progress] = {}

    @property
    def attempts(self) -> Mapping[K, int]:
        """How often each key that is under way has been tried."""
        return {key: progress.attempts for key, progress in self._progress.items()}

    def is_untried(self, key: K) -> bool:
        """Tell whether a key is under way and no attempt of it has ended."""
        return key in self._progress and not self._progress[key].attempts

    def want(self, key: K) -> None:
        """Have it done for `key`; returns at once. What has failed is tried again at once, with short pauses again."""
        if key not in self._progress:
            self._progress[key] = _Progress()
            self._wanted.put_nowait(key)
        elif self._progress[key].attempts:
            self._progress[key].again.set()

    async def wait_done(self, key: K) -> None:
        """Wait until it is done for `key`; at once if it is not under way."""
        if key in self._progress:
            await self._progress[key].done.wait()

    async def wait_tried(self, keys: Iterable[K]) -> None:
        """Wait until each of some keys that are under way has been tried once."""
        for progress in [self._progress[key] for key in keys if key in self._progress]:
            await progress.tried.wait()

    async def run(self) -> None:
        """Work for as long as it is not cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._work(await self._wanted.get()))
                await asyncio.sleep(0)  # of ten thousand at once not all in one turn of the event loop

    async def _work(self, key: K) -> None:
        progress = self._progress[key]
        pause_s = self._first_pause_s
        while not await self._try(key):
            progress.attempts += 1
            progress.tried.set()
            self._on_attempt()
            try:
                async with asyncio.timeout(pause_s):
                    await progress.again.wait()
                progress.again.clear()
                pause_s = self._first_pause_s
            except TimeoutError:
                pause_s = min(pause_s * 2, self._longest_pause_s)
        del self._progress[key]
        progress.tried.set()
        progress.done.set()
        self._on_attempt()

    async def _try(self, key: K) -> bool:
        try:
            return await self._attempt(key)
        except Exception:  # a bug in background work must neither end the daemon nor go unseen
            log.exception("retry.bug", key=str(key))
            return False
