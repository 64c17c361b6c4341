# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who may work on a network at the same time: ADD, CHECK and DEL together, GC alone; on a container one by one.

CNI SPEC §3, "Lifecycle & Ordering". A network that is being added to while GC lists what is valid would lose what it
has just got; a container that is being added while it is deleted keeps half of each.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from cni_invoker.errors import NetworkBusy

__all__ = ["Gates"]


class _Gate:
    """Lets many in together, or one alone; first come, first served, so that nobody waits for ever."""

    def __init__(self) -> None:
        self._turnstile = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()
        self._inside = 0

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
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
    async def alone(self) -> AsyncIterator[None]:
        # Who comes now waits at the turnstile; who is inside leaves first.
        async with self._turnstile:
            await self._empty.wait()
            yield


class Gates:
    """The gates of all networks, and the locks of all containers; those that nobody uses take no memory.

    A gate is always passed before a lock is taken: whoever has a lock waits for no gate, so that nobody waits in a
    circle. Neither may be entered again by who is inside.

    Args:
        wait_s: How long anybody waits for any of them.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._gates: WeakValueDictionary[str, _Gate] = WeakValueDictionary()
        self._containers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def attachment(self, network: str, container_id: str) -> AbstractAsyncContextManager[None]:
        """Have the body run while nobody else works on the container, and no GC on the network.

        Raises:
            NetworkBusy: That was not so in time; the body has not run.
        """
        return self._inside(network, self._gate(network).together(), self._container(container_id))

    def alone(self, network: str, wait_s: float | None = None) -> AbstractAsyncContextManager[None]:
        """Have the body run while nobody else works on the network.

        Args:
            network: The network's name.
            wait_s: How long to wait, in seconds; None for as long as everybody.

        Raises:
            NetworkBusy: That was not so in time; the body has not run.
        """
        return self._inside(network, self._gate(network).alone(), wait_s=wait_s)

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
