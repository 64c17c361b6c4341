# SPDX-License-Identifier: Apache-2.0
"""Locks for the tasks of all event loops and threads of the process, and for processes.

asyncio's locks belong to one event loop: a second loop that has to wait gets an exception, and a waiter in another
thread is never woken up. Here a waiter is woken up in its own loop, or its own thread, whichever releases a slot.
"""

import fcntl
import os
import threading
from asyncio import timeout
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from cni_invoker.errors import NetworkBusy
from cni_invoker.waiting import Waiter


class Slots:
    """A fair semaphore; who needs one or more of them waits in line, first come, first served.

    `Slots(1)` is a lock. It is not reentrant.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[Waiter] = deque()
        self._mutex = threading.Lock()  # held for some instructions, never while a task waits

    @asynccontextmanager
    async def held(self, count: int = 1) -> AsyncIterator[None]:
        """Run the body while it holds `count` slots, at most as many as there are."""
        waiter = self._take_or_queue(count)
        if waiter is not None:
            try:
                await waiter.wait()
            except BaseException:  # a cancellation, or the end of a time limit
                if not self._leave_line(waiter):
                    self._give_back(count)  # they were granted at that moment
                raise
        try:
            yield
        finally:
            self._give_back(count)

    def _take_or_queue(self, count: int) -> "Waiter | None":
        with self._mutex:
            if count <= self._free and not self._line:
                self._free -= count
                return None
            waiter = Waiter(count)
            self._line.append(waiter)
            return waiter

    def _leave_line(self, waiter: "Waiter") -> bool:
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


_ALL: Final = 1 << 30
"""All slots of a network; an operation takes one of them, GC takes all."""


class TaskLocks:
    """Locks of networks and containers: ADD, CHECK and DEL share a network, GC has it exclusively.

    Operations on one container run one by one (CNI SPEC §3, "Lifecycle & Ordering"). GC would otherwise delete what a
    concurrent ADD has just created. Lock order: the network, then the container. Neither is reentrant.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._networks: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._containers: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._mutex = threading.Lock()  # of the dictionaries

    def attachment(self, network: str, container_id: str) -> AbstractAsyncContextManager[None]:
        """Run the body while no other operation uses the container and no GC runs on the network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._inside(network, self._network(network).held(), self._container(container_id).held())

    def exclusive(self, network: str, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        """Run the body while no other operation uses the network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._inside(network, self._network(network).held(_ALL), wait_s=wait_s)

    def _network(self, name: str) -> Slots:
        with self._mutex:
            return self._networks.setdefault(name, Slots(_ALL))

    def _container(self, container_id: str) -> Slots:
        with self._mutex:
            return self._containers.setdefault(container_id, Slots(1))

    @asynccontextmanager
    async def _inside(
        self, network: str, *doors: AbstractAsyncContextManager[None], wait_s: float | None = None
    ) -> AsyncIterator[None]:
        limit_s = self._wait_s if wait_s is None else wait_s
        async with AsyncExitStack() as entered:
            try:
                async with timeout(limit_s):
                    for door in doors:
                        await entered.enter_async_context(door)
            except TimeoutError as exc:
                raise NetworkBusy(network, waited_s=limit_s) from exc
            yield


def release_file_lock(descriptor: int) -> None:
    """Unlock a file and close it; a child that was forked meanwhile has the descriptor too, and would keep the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def take_file_lock(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock a file for this process, at once; return False if another one holds its lock."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
