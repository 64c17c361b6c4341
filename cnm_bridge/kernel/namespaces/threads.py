# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Short-lived threads for work in another namespace.

A thread that has entered a namespace never returns to its own: it does one piece of work completely, and ends. In a
pool, the next piece of work would inherit its namespace.
"""

import asyncio
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


def _carry_on() -> None: ...


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = _carry_on) -> T:
    """Run `work` in a thread of its own and return or raise its outcome.

    The work has always ended when this function returns; a cancellation also waits for it. A thread cannot be stopped
    from outside, so `work` must limit its own time, or `stop`, which a cancellation calls, must make it end.

    The event loop waits neither for the start nor for the end of the thread, as `threading.Thread` would make it: on a
    busy machine each takes milliseconds (measured after a reboot: a third of the time that the loop was blocked).
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def body() -> None:
        try:
            value = work()
        except BaseException as exc:  # noqa: BLE001 - the awaiting task raises it again
            loop.call_soon_threadsafe(ended.set_exception, exc)
        else:
            loop.call_soon_threadsafe(ended.set_result, value)

    start_new_thread(body, ())
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError as cancelled:
        stop()
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ended,))
        raise cancelled from ended.exception()
