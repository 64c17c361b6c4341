# SPDX-License-Identifier: Apache-2.0
"""Locks for tasks, and for processes.

Unlike asyncio's, those for tasks are bound to no event loop, so a program may call `asyncio.run` several times with one
runtime. Only one event loop may use them at a time.
"""

import asyncio
import fcntl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from cni_invoker.errors import NetworkBusy


class Slots:
    """A fair semaphore; who needs one or more of them waits in line, first come, first served.

    `Slots(1)` is a lock. It is not reentrant.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[tuple[int, asyncio.Event]] = deque()

    @asynccontextmanager
    async def held(self, count: int = 1) -> AsyncIterator[None]:
        """Run the body while it holds `count` slots, at most as many as there are."""
        turn = count, asyncio.Event()
        self._line.append(turn)
        self._serve()
        try:
            await turn[1].wait()
            yield
        finally:  # also after a cancellation, or the end of a time limit
            if turn[1].is_set():
                self._free += count
            else:
                self._line.remove(turn)
            self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0][0] <= self._free:
            count, granted = self._line.popleft()
            self._free -= count
            granted.set()


_ALL: Final = 1 << 30
"""All slots of a network; an operation takes one of them, GC takes all."""


class TaskLocks:
    """Locks of networks and containers: ADD, CHECK and DEL share a network, GC has it exclusively.

    Operations on one container run one by one (CNI SPEC §3, "Lifecycle & Ordering"). GC would otherwise delete what a
    concurrent ADD has just created. Lock order: the network, then the container. Neither is reentrant.
    """

    def __init__(self) -> None:
        self._networks: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._containers: WeakValueDictionary[str, Slots] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AsyncIterator[None]:
        """Run the body while no other operation uses a container or, with None, a network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        of_network = self._networks.setdefault(network, Slots(_ALL))
        of_container = self._containers.setdefault(container_id or "", Slots(1))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(wait_s):
                    await held.enter_async_context(of_network.held(1 if container_id else _ALL))
                    if container_id:
                        await held.enter_async_context(of_container.held())
            except TimeoutError as exc:
                raise NetworkBusy(network, waited_s=wait_s) from exc
            yield


def take_file_lock(descriptor: int) -> bool:
    """Lock an open file or directory, at once; return False if its lock is held through another descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
