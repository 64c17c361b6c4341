# SPDX-License-Identifier: Apache-2.0
"""Waits: for work, for a slot, for a time. An event loop that runs in this thread goes on meanwhile.

Without one the thread itself works and waits, and no coroutine is ever suspended. So programs without asyncio need no
event loop, and do not even load asyncio (`sync`). Nothing else of this package may await anything of asyncio's.

Blocking work has a thread of its own: in a pool, the next piece would inherit a namespace, or wait for a program.
"""

import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from errno import EAGAIN
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

T = TypeVar("T")


class _Deadlines(threading.local):
    """Of a thread without an event loop: when its innermost time limit ends, by `time.monotonic`."""

    until: float = float("inf")


_DEADLINES: Final = _Deadlines()


def has_running_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    return _find_loop() is not None


def _find_loop() -> "asyncio.AbstractEventLoop | None":
    find = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)  # who has one has loaded asyncio
    loop: asyncio.AbstractEventLoop | None = None if find is None else find()
    return loop


async def sleep(duration_s: float) -> None:
    """Wait for this time.

    Raises:
        TimeoutError: A time limit of this thread ends before.
    """
    if has_running_loop():
        import asyncio  # noqa: PLC0415  # it is loaded, as an event loop runs

        await asyncio.sleep(duration_s)
        return
    left_s = _DEADLINES.until - time.monotonic()
    time.sleep(max(0.0, min(duration_s, left_s)))  # noqa: ASYNC251  # no event loop runs
    if left_s < duration_s:
        raise TimeoutError


@asynccontextmanager
async def time_limit(limit_s: float) -> AsyncIterator[None]:
    """Limit the time that the body waits; it raises `TimeoutError` then."""
    if has_running_loop():
        import asyncio  # noqa: PLC0415  # as above

        async with asyncio.timeout(limit_s):
            yield
        return
    outer = _DEADLINES.until
    _DEADLINES.until = min(outer, time.monotonic() + limit_s)
    try:
        yield
    finally:
        _DEADLINES.until = outer


class Waiter:
    """A task, or a thread without an event loop, that waits until another one wakes it up."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._is_granted = False
        self._loop = _find_loop()
        if self._loop is None:
            self._event = threading.Event()
        else:
            import asyncio  # noqa: PLC0415  # as above

            self._woken = asyncio.Event()

    async def wait(self, limit_s: float | None = None) -> bool:
        """Wait to be woken up, or for this time; return whether it has been.

        Raises:
            TimeoutError: A time limit of this thread ends before.
        """
        if self._loop is None:
            left_s = _DEADLINES.until - time.monotonic()
            woken = self._event.wait(min(max(0.0, left_s), _LONGEST_S if limit_s is None else limit_s))
            if not woken and time.monotonic() >= _DEADLINES.until:
                raise TimeoutError
            return woken
        if limit_s is None:
            return await self._woken.wait()
        timer = self._loop.call_later(limit_s, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        if self._is_granted:
            return True
        self._woken.clear()
        return False

    def grant(self) -> bool:
        """Wake it up; return False if its event loop has been closed."""
        if self._loop is None:
            self._event.set()
            return True
        self._is_granted = True
        if self._loop is _find_loop():
            self._woken.set()
            return True
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False
        return True


_LONGEST_S: Final = 3600.0


async def run_all(works: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Return the outcomes of all, which run at once in an event loop and one after the other without."""
    if not has_running_loop():
        return [await work for work in works]
    import asyncio  # noqa: PLC0415  # as above

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(work) for work in works]
    return [task.result() for task in running]


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = lambda: None) -> T:
    """Run `work` in a thread of its own and return or raise its outcome; without an event loop, in this thread.

    The work has always ended when this function returns. A cancellation calls `stop`, which may make it end sooner. The
    event loop waits neither for the start nor for the end of the thread: each may take milliseconds.

    Raises:
        BlockingIOError: The kernel starts no further thread; the work has not begun.
    """
    if not has_running_loop():
        return work()
    import asyncio  # noqa: PLC0415  # as above
    from concurrent.futures import Future  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    outcome: Future[T] = Future()
    wake = loop.create_future()

    def end() -> None:
        if not wake.done():
            wake.set_result(None)

    try:
        start_new_thread(_run, (work, outcome, lambda: loop.call_soon_threadsafe(end)))
    except RuntimeError as exc:
        raise BlockingIOError(EAGAIN, "no further thread can be started") from exc
    cancelled = None
    while not outcome.done():
        try:
            await wake  # a shield takes another turn of the event loop
        except asyncio.CancelledError as exc:
            cancelled = exc
            wake = loop.create_future()
            stop()
    try:
        if cancelled is not None:
            raise cancelled from outcome.exception()
        return outcome.result()
    finally:
        del outcome, cancelled  # an exception refers to this frame, which must not refer to it


def _run(work: Callable[[], T], outcome: "Future[T]", wake: Callable[[], object]) -> None:
    if (trace := threading.gettrace()) is not None:  # as `threading.Thread` does: coverage sees this thread
        sys.settrace(trace)
    try:
        outcome.set_result(work())
    except BaseException as exc:  # noqa: BLE001 - the awaiting task raises it again
        outcome.set_exception(exc)
    del work, outcome  # as above
    with suppress(RuntimeError):  # the event loop is closed, so no task waits
        wake()
