# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks of networks and containers: ADD, CHECK and DEL share a network, GC has it exclusively.

Operations on one container run one by one (CNI SPEC §3, "Lifecycle & Ordering"). GC would otherwise delete what a
concurrent ADD has just created, and a concurrent ADD and DEL of one container would each leave half of their work.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from cni_invoker.errors import NetworkBusy

__all__ = ["TaskLocks"]


class _Gate:
    """A fair lock that is held shared or exclusively; first come, first served, so no waiter starves."""

    def __init__(self) -> None:
        self._turnstile = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._turnstile:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        # Newcomers wait at the turnstile until the present holders have left.
        async with self._turnstile:
            await self._empty.wait()
            yield


class TaskLocks:
    """The gates of all networks and the locks of all containers; unused ones take no memory.

    Lock order: first the network's gate, then the container's lock, so there is no deadlock. Neither is reentrant.

    Args:
        wait_s: How long to wait for a gate and a lock, in seconds.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._gates: WeakValueDictionary[str, _Gate] = WeakValueDictionary()
        self._containers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def attachment(self, network: str, container_id: str) -> AbstractAsyncContextManager[None]:
        """Run the body while no other operation uses the container and no GC runs on the network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._inside(network, self._gate(network).shared(), self._container(container_id))

    def exclusive(self, network: str, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        """Run the body while no other operation uses the network.

        Args:
            network: The network's name.
            wait_s: How long to wait, in seconds; None for the usual limit.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._inside(network, self._gate(network).exclusive(), wait_s=wait_s)

    def _gate(self, network: str) -> _Gate:
        return self._gates.setdefault(network, _Gate())

    def _container(self, container_id: str) -> asyncio.Lock:
        return self._containers.setdefault(container_id, asyncio.Lock())

    @asynccontextmanager
    async def _inside(
        self, network: str, *doors: AbstractAsyncContextManager[None], wait_s: float | None = None
    ) -> AsyncIterator[None]:
        limit_s = self._wait_s if wait_s is None else wait_s
        async with AsyncExitStack() as entered:
            try:
                async with asyncio.timeout(limit_s):
                    for door in doors:
                        await entered.enter_async_context(door)
            except TimeoutError as exc:
                raise NetworkBusy(network, waited_s=limit_s) from exc
            yield
