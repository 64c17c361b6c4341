# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A fair semaphore for the tasks of all event loops and threads of the process.

asyncio's locks belong to one event loop: a second loop that has to wait gets an exception, and a waiter in another
thread is never woken up. Here a waiter is woken up in its own loop, whichever thread releases a slot.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Slots"]


class Slots:
    """A number of slots; who needs one or more of them waits in line, first come, first served.

    `Slots(1)` is a lock. It is not reentrant.

    Args:
        count: How many slots there are.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[_Waiter] = deque()
        self._mutex = threading.Lock()  # held for some instructions, never while a task waits

    @asynccontextmanager
    async def held(self, count: int = 1) -> AsyncIterator[None]:
        """Run the body while it holds `count` slots, at most as many as there are."""
        waiter = self._take_or_queue(count)
        if waiter is not None:
            try:
                await waiter.granted
            except asyncio.CancelledError:
                if not self._leave_line(waiter):
                    self._give_back(count)  # they were granted at that moment
                raise
        try:
            yield
        finally:
            self._give_back(count)

    def _take_or_queue(self, count: int) -> "_Waiter | None":
        with self._mutex:
            if count <= self._free and not self._line:
                self._free -= count
                return None
            waiter = _Waiter(count)
            self._line.append(waiter)
            return waiter

    def _leave_line(self, waiter: "_Waiter") -> bool:
        """Remove a waiter; return False if it is in the line no more because it has got its slots."""
        with self._mutex:
            if waiter not in self._line:
                return False
            self._line.remove(waiter)
            self._serve()  # it may have been in the way of others
            return True

    def _give_back(self, count: int) -> None:
        with self._mutex:
            self._free += count
            self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0].count <= self._free:
            waiter = self._line.popleft()
            if waiter.grant():
                self._free -= waiter.count


class _Waiter:
    """A task that waits for slots.

    Args:
        count: How many it needs.

    Attributes:
        granted: Done when it has got them; it belongs to the task's event loop.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self._loop.create_future()

    def grant(self) -> bool:
        """Wake up the task; return False if its event loop has been closed."""
        if self._loop is _running_loop():
            self._wake_up()
            return True
        try:
            self._loop.call_soon_threadsafe(self._wake_up)
        except RuntimeError:
            return False
        return True

    def _wake_up(self) -> None:
        if not self.granted.done():
            self.granted.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
