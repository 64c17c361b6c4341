# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Retries an operation for each of many keys until it succeeds, with exponentially growing pauses."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import structlog

__all__ = ["RetryQueue"]

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)

_BEGUN_AT_ONCE: Final = 64
"""Maximum number of keys of a backlog in progress: thousands of tasks would take a hundred megabytes."""


class _Signal:
    """An `asyncio.Event` that needs almost no memory until a task waits for it: there may be thousands of keys."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: asyncio.Event | None = None

    def set(self) -> None:
        """Wake all waiters; later calls of `wait` return immediately."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """Make later calls of `wait` block again."""
        self._is_set = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        """Wait until it is set."""
        if not self._is_set:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


class _Progress:
    """The progress of one key.

    Attributes:
        attempts: Number of failed attempts.
        tried: Set after the first attempt.
        again: Set by `add`, to end the current pause.
        done: Set after the successful attempt.
    """

    __slots__ = ("again", "attempts", "done", "tried")

    def __init__(self) -> None:
        self.attempts = 0
        self.tried = _Signal()
        self.again = _Signal()
        self.done = _Signal()


class _Backlog(Generic[K]):
    """Keys that wait for their turn. A few begin immediately, each further one after an attempt has ended."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[K, None] = OrderedDict()
        self._begun: set[K] = set()

    def add(self, key: K) -> None:
        """Add a key at the end."""
        self._waiting[key] = None

    def remove(self, key: K) -> bool:
        """Remove a key; return whether it was waiting."""
        if key not in self._waiting:
            return False
        del self._waiting[key]
        return True

    def take_due(self) -> Iterator[K]:
        """Remove and yield the keys that begin now."""
        while self._waiting and len(self._begun) < _BEGUN_AT_ONCE:
            key, _ = self._waiting.popitem(last=False)
            self._begun.add(key)
            yield key

    def was_tried(self, key: K) -> None:
        """Let the next key begin, if this one began from this backlog."""
        self._begun.discard(key)


class RetryQueue(Generic[K]):
    """Runs attempts in the background, one task for each key, in `run`.

    Args:
        attempt: Tries once; returns whether nothing is left to do. An exception is logged and counts as False.
        first_pause_s: The pause after the first attempt; it doubles after each further one.
        longest_pause_s: The maximum pause.
        on_attempt: Called after each attempt, once `attempts` includes it.
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
        self._working: set[K] = set()
        self._later: _Backlog[K] = _Backlog()
        self._urgent: _Backlog[K] = _Backlog()

    @property
    def attempts(self) -> Mapping[K, int]:
        """The number of failed attempts of each key in progress."""
        return {key: progress.attempts for key, progress in self._progress.items()}

    def attempts_of(self, key: K) -> int | None:
        """Return the number of failed attempts of a key, None if it is not in progress."""
        return self._progress[key].attempts if key in self._progress else None

    def is_under_way(self, key: K) -> bool:
        """Return whether a key is in the queue and has not succeeded."""
        return key in self._progress

    def is_untried(self, key: K) -> bool:
        """Return whether a key is in the queue and none of its attempts has ended."""
        return key in self._progress and not self._progress[key].attempts

    def add(self, key: K) -> None:
        """Add a key to the queue; does not block. A key that has failed is retried immediately, with short pauses."""
        if key not in self._progress:
            self._progress[key] = _Progress()
            self._wanted.put_nowait(key)
        elif self._progress[key].attempts:
            self._progress[key].again.set()
        else:
            self.begin((key,))

    def add_later(self, key: K) -> None:
        """Add one of very many keys to the queue: a few of them begin, each further one after an attempt has ended."""
        if key not in self._progress:
            self._progress[key] = _Progress()
            self._later.add(key)
            self._begin_due()

    def begin(self, keys: Iterable[K]) -> None:
        """Begin with those of the given keys that `add_later` has added, in this order and a few at a time."""
        for key in keys:
            if self._later.remove(key):
                self._urgent.add(key)
        self._begin_due()

    async def wait_done(self, key: K) -> None:
        """Wait until a key has succeeded; return immediately if it is not in the queue."""
        if key in self._progress:
            await self._progress[key].done.wait()

    async def wait_tried(self, keys: Iterable[K]) -> None:
        """Wait until each of the given keys that is in the queue has been tried once."""
        for progress in [self._progress[key] for key in keys if key in self._progress]:
            await progress.tried.wait()

    async def run(self) -> None:
        """Run the queue until cancelled. Then it can be run again, and continues with all of its keys."""
        async with asyncio.TaskGroup() as tasks:
            for key in tuple(self._working):
                tasks.create_task(self._work(key))
            while True:
                key = await self._wanted.get()
                self._working.add(key)
                tasks.create_task(self._work(key))
                await asyncio.sleep(0)  # thousands of keys must not all begin in one turn of the event loop

    def _begin_due(self) -> None:
        for backlog in (self._urgent, self._later):
            for key in backlog.take_due():
                self._wanted.put_nowait(key)

    def _was_tried(self, key: K) -> None:
        self._progress[key].tried.set()
        self._urgent.was_tried(key)
        self._later.was_tried(key)
        self._begin_due()

    async def _work(self, key: K) -> None:
        while key in self._progress:
            try:
                await self._repeat(key)
            except Exception:  # it would cancel the attempts of all other keys, and with them running plugins
                log.exception("retry.bug", key=str(key))
                await asyncio.sleep(self._first_pause_s)

    async def _repeat(self, key: K) -> None:
        progress = self._progress[key]
        pause_s = self._first_pause_s
        while not await self._try(key):
            progress.attempts += 1
            self._was_tried(key)
            self._on_attempt()
            try:
                async with asyncio.timeout(pause_s):
                    await progress.again.wait()
                progress.again.clear()
                pause_s = self._first_pause_s
            except TimeoutError:
                pause_s = min(pause_s * 2, self._longest_pause_s)
        self._was_tried(key)
        del self._progress[key]
        self._working.discard(key)
        progress.done.set()
        self._on_attempt()

    async def _try(self, key: K) -> bool:
        try:
            return await self._attempt(key)
        except Exception:  # a bug in background work must be logged and must not end the daemon
            log.exception("retry.bug", key=str(key))
            return False
