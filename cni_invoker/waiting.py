# SPDX-License-Identifier: Apache-2.0
"""Waits that asyncio does not have: for another task of any event loop and thread, and for work in a thread of its own.

Blocking work has a thread of its own: in a pool, the next piece would inherit a namespace, or wait for a program.
"""

import asyncio
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from errno import EAGAIN
from typing import TypeVar

T = TypeVar("T")


class Waiter:
    """A task that waits until another one, maybe of another event loop and thread, wakes it up."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._is_granted = False
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def wait(self, limit_s: float | None = None) -> bool:
        """Wait to be woken up, or for this time; return whether it has been."""
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
        self._is_granted = True
        if self._loop is asyncio._get_running_loop():  # noqa: SLF001  # public, for such uses
            self._woken.set()
            return True
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False
        return True


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = lambda: None) -> T:
    """Run `work` in a thread of its own and return or raise its outcome.

    The work has always ended when this function returns. A cancellation calls `stop`, which may make it end sooner. The
    event loop waits neither for the start nor for the end of the thread: each may take milliseconds.

    Raises:
        BlockingIOError: The kernel starts no further thread; the work has not begun.
    """
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


def _run(work: Callable[[], T], outcome: Future[T], wake: Callable[[], object]) -> None:
    if (trace := threading.gettrace()) is not None:  # as `threading.Thread` does: coverage sees this thread
        sys.settrace(trace)
    try:
        outcome.set_result(work())
    except BaseException as exc:  # noqa: BLE001 - the awaiting task raises it again
        outcome.set_exception(exc)
    del work, outcome  # as above
    with suppress(RuntimeError):  # the event loop is closed, so no task waits
        wake()
