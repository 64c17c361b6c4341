# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Work by key that is attempted until it completes, with growing pauses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import structlog

log = structlog.get_logger()

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True, kw_only=True)
class Retry(Generic[K]):
    """Work that has not completed.

    Attributes:
        attempts: How many attempts have failed.
        error: Why the last one failed, None before one has.
        since: When the first attempt in this run of the daemon failed, by `time.monotonic`; None before one has.
        wake: Set to end the pause before the next attempt. An attempt may wait for it, too.
    """

    key: K
    attempts: int = 0
    error: str | None = None
    since: float | None = None
    is_done: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def fail(self, error: str) -> None:
        """Note why an attempt has failed."""
        self.error = error
        self.since = time.monotonic() if self.since is None else self.since


R = TypeVar("R", bound="Retry[Any]")


class Retries(Generic[K, R]):
    """The pending work, and a notification of each change."""

    first_pause_s = 1.0
    longest_pause_s = 300.0
    """The pause after a failed attempt doubles up to this."""

    def __init__(self, make: Callable[[K], R]) -> None:
        self._make = make
        self._pending: dict[K, R] = {}
        self._added: asyncio.Queue[R] = asyncio.Queue()
        self._changed = asyncio.Event()

    @property
    def all(self) -> Mapping[K, R]:
        """The pending work, in the order in which it was added; a live view."""
        return MappingProxyType(self._pending)

    def find(self, keys: Iterable[K]) -> tuple[R, ...]:
        """Return the pending work for these keys."""
        return tuple(self._pending[key] for key in keys if key in self._pending)

    def add(self, key: K) -> R:
        """Return the pending work for a key. If there is none, it is added, and begins soon; does not block."""
        one = self._pending.get(key)
        if one is None:
            one = self._pending[key] = self._make(key)
            self._added.put_nowait(one)
        return one

    def remove(self, one: R) -> None:
        """Remove work that has completed, if that has not been done."""
        one.is_done = True
        if self._pending.get(one.key) is one:
            del self._pending[one.key]

    def announce(self) -> None:
        """Have all waiters check their condition again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is called now, after each attempt, and after each announcement."""
        while not is_true():
            await self._changed.wait()

    async def wait_until_each(
        self, wanted: Iterable[R], is_true: Callable[[R], bool], *, or_until: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until `is_true` has returned True for each of these, once, or until `or_until()`."""
        waiting = list(wanted)

        def are_all() -> bool:
            while waiting and is_true(waiting[-1]):
                waiting.pop()
            return not waiting or or_until()

        await self.wait_until(are_all)

    async def wait_attempted(self, wanted: Collection[R], *, or_until: Callable[[], bool] = lambda: False) -> None:
        """Wait until an attempt of each has ended, even if the next one begins at once, or until `or_until()`."""
        before = {one: one.attempts for one in wanted}
        await self.wait_until_each(wanted, lambda one: one.is_done or one.attempts > before[one], or_until=or_until)

    async def run(self, attempt: Callable[[R], Awaitable[bool]]) -> None:
        """Attempt all pending work until cancelled. Then it can be called again, and continues with all of it.

        `attempt` returns whether the work has completed. A bug in it is logged, and counts as a failure.
        """
        self._added = asyncio.Queue()  # no await before all are in it: none is added twice
        for one in self._pending.values():
            self._added.put_nowait(one)
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._repeat(await self._added.get(), attempt))
                await asyncio.sleep(0)  # thousands must not all begin in one turn of the event loop

    async def _repeat(self, one: R, attempt: Callable[[R], Awaitable[bool]]) -> None:
        pause_s = self.first_pause_s
        while not await self._attempt(one, attempt):
            try:
                async with asyncio.timeout(pause_s):
                    await one.wake.wait()
                pause_s = self.first_pause_s
            except TimeoutError:
                pause_s = min(pause_s * 2, self.longest_pause_s)

    async def _attempt(self, one: R, attempt: Callable[[R], Awaitable[bool]]) -> bool:
        one.wake.clear()
        try:
            if await attempt(one):
                self.remove(one)
        except Exception as exc:  # it must not end the daemon or the other work
            log.exception("retry.bug", key=one.key)
            one.fail(f"internal error: {exc!r}")
        one.attempts += not one.is_done
        self.announce()
        return one.is_done
