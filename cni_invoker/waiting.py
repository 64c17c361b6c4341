# SPDX-License-Identifier: Apache-2.0
"""Blocking work in a thread of its own: in a pool, the next piece would inherit a namespace, or wait for a program."""

import asyncio
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from errno import EAGAIN
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = lambda: None) -> T:
    """Run `work` in a thread of its own and return or raise its outcome.

    The work has always ended when this function returns. A cancellation calls `stop`, which may make it end sooner. The
    event loop waits neither for the start nor for the end of the thread: each may take milliseconds.

    Raises:
        BlockingIOError: The kernel starts no further thread; the work has not begun.
    """
    loop = asyncio.get_running_loop()
    wake = loop.create_future()

    def end() -> None:
        if not wake.done():
            wake.set_result(None)

    outcome = start_thread(work, lambda: loop.call_soon_threadsafe(end))
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


def start_thread(work: Callable[[], T], wake: Callable[[], object] = lambda: None) -> Future[T]:
    """Run `work` in a thread of its own, and return its future outcome; the end of the process does not wait for it.

    Args:
        work: What is done.
        wake: Called in the thread when there is an outcome.

    Raises:
        BlockingIOError: The kernel starts no further thread; the work has not begun.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # a waiting task cannot cancel it
    try:
        start_new_thread(_run, (work, outcome, wake))
    except RuntimeError as exc:
        raise BlockingIOError(EAGAIN, "no further thread can be started") from exc
    return outcome


async def wait_for_threads(outcomes: Iterable[Future[T]], until: float) -> bool:
    """Wait until all threads have ended, or the clock of `time.monotonic` is at `until`; return whether they have."""
    waiting = [asyncio.wrap_future(one) for one in outcomes]
    try:
        _, pending = await asyncio.wait(waiting, timeout=max(0.0, until - time.monotonic()))
    finally:
        for one in waiting:
            one.cancel()
    return not pending


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
