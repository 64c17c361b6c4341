# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Does something for each of many keys until it succeeds, with longer and longer pauses between."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import structlog

__all__ = ["RetryQueue"]

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)

_BEGUN_AT_ONCE: Final = 64
"""How many keys of a backlog are begun at once: thousands of tasks would take a hundred megabytes."""


class _Signal:
    """An `asyncio.Event` that takes next to no memory unless somebody waits for it: there may be ten thousand keys."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: asyncio.Event | None = None

    def set(self) -> None:
        """Let those who wait go on, and those who come later."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """Let those who come from now on wait."""
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
    """How far one key has come.

    Attributes:
        attempts: How many there were.
        tried: Set after the first attempt, and when there is nothing left to try.
        again: Set when it is wanted once more.
        done: Set after the attempt that succeeded.
    """

    __slots__ = ("again", "attempts", "done", "tried")

    def __init__(self) -> None:
        self.attempts = 0
        self.tried = _Signal()
        self.again = _Signal()
        self.done = _Signal()


class _Backlog(Generic[K]):
    """Keys that wait for their turn. A few are begun at once; each that was tried makes room for the next."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[K, None] = OrderedDict()
        self._begun: set[K] = set()

    def add(self, key: K) -> None:
        """Let a key wait after the others."""
        self._waiting[key] = None

    def remove(self, key: K) -> bool:
        """Take a key out; return whether it was waiting."""
        if key not in self._waiting:
            return False
        del self._waiting[key]
        return True

    def take_due(self) -> Iterator[K]:
        """Yield the keys that are to begin now."""
        while self._waiting and len(self._begun) < _BEGUN_AT_ONCE:
            key, _ = self._waiting.popitem(last=False)
            self._begun.add(key)
            yield key

    def was_tried(self, key: K) -> None:
        """Make room for the next one, if the key was begun from here."""
        self._begun.discard(key)


class RetryQueue(Generic[K]):
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
        self._later: _Backlog[K] = _Backlog()
        self._urgent: _Backlog[K] = _Backlog()

    @property
    def attempts(self) -> Mapping[K, int]:
        """How often each key that is under way has been tried."""
        return {key: progress.attempts for key, progress in self._progress.items()}

    def is_under_way(self, key: K) -> bool:
        """Return whether it is to be done for a key, and is not done."""
        return key in self._progress

    def is_untried(self, key: K) -> bool:
        """Return whether a key is under way and no attempt of it has ended."""
        return key in self._progress and not self._progress[key].attempts

    def want(self, key: K) -> None:
        """Have it done for `key`; returns at once. What has failed is tried again at once, with short pauses again."""
        if key not in self._progress:
            self._progress[key] = _Progress()
            self._wanted.put_nowait(key)
        elif self._progress[key].attempts:
            self._progress[key].again.set()
        else:
            self.begin((key,))

    def want_later(self, key: K) -> None:
        """Have it done for `key`, one of very many: a few of them begin at once, the others when these were tried."""
        if key not in self._progress:
            self._progress[key] = _Progress()
            self._later.add(key)
            self._begin_due()

    def begin(self, keys: Iterable[K]) -> None:
        """Begin with those of some keys that were to come later; of very many, a few at once, in this order."""
        for key in keys:
            if self._later.remove(key):
                self._urgent.add(key)
        self._begin_due()

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
        progress.done.set()
        self._on_attempt()

    async def _try(self, key: K) -> bool:
        try:
            return await self._attempt(key)
        except Exception:  # a bug in background work must neither end the daemon nor go unseen
            log.exception("retry.bug", key=str(key))
            return False
