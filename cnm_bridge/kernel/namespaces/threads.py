# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Short-lived threads for work in another namespace.

A thread that has entered a namespace never returns to its own: it does one piece of work completely, and ends. In a
pool, the next piece of work would inherit its namespace.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


def _carry_on() -> None: ...


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = _carry_on) -> T:
    """Do `work` in a thread of its own and give what it returns or raises.

    The thread has ended when this returns, in every case: a cancellation waits for it too and is raised afterwards, so
    that nothing goes on behind the caller's back. A thread cannot be stopped from outside: the limit to its time is in
    `work`, or `stop`, called on a cancellation, makes it end.
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

    thread = threading.Thread(target=body, name="cni-bridge-kernel")
    thread.start()
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError as cancelled:
        stop()
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ended,))
        raise cancelled from ended.exception()
    finally:
        thread.join()  # its last instructions: the outcome is already here
