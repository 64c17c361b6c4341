# SPDX-License-Identifier: Apache-2.0
"""Locks for tasks and for processes, and blocking work in a thread of its own.

Unlike asyncio's, the locks for tasks are bound to no event loop, so a program may call `asyncio.run` several times with
one runtime. Only one event loop may use them at a time. In a pool of threads, the next piece of work would inherit a
namespace, or wait for a program.
"""

import asyncio
import fcntl
import sys
import threading
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from errno import EAGAIN
from typing import Final, TypeVar
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

    `wake` is called in the thread when there is an outcome.

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
