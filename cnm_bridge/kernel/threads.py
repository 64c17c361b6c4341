# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Throw-away threads: where all work in another namespace happens.

A thread that has entered a namespace never comes home: it does one piece of work, whole, and ends. A pool would hand
its namespace on to the next piece of work.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Do `work` in a thread of its own and give what it returns or raises.

    The thread has ended when this returns, in every case: a cancellation waits for it too and is raised afterwards, so
    that nothing goes on behind the caller's back. A thread cannot be stopped: the limit to its time is in `work`.
    """
    outcome: Future[T] = Future()

    def body() -> None:
        try:
            outcome.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - the awaiting task raises it again
            outcome.set_exception(exc)

    thread = threading.Thread(target=body, name="cni-bridge-kernel")
    thread.start()
    ended = asyncio.wrap_future(outcome)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended,))
        except asyncio.CancelledError as exc:
            cancelled = exc
    thread.join()  # its last instructions: the outcome is already here
    if cancelled is not None:
        raise cancelled from ended.exception()
    return ended.result()
