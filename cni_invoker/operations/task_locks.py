# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks of networks and containers: ADD, CHECK and DEL share a network, GC has it exclusively.

Operations on one container run one by one (CNI SPEC §3, "Lifecycle & Ordering"). GC would otherwise delete what a
concurrent ADD has just created, and a concurrent ADD and DEL of one container would each leave half of their work.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from cni_invoker.errors import NetworkBusy
from cni_invoker.execution.slots import Slots

__all__ = ["TaskLocks"]


_ALL: Final = 1 << 30
"""All slots of a network; an operation takes one of them, GC takes all."""


class TaskLocks:
    """The gates of all networks and the locks of all containers; unused ones take no memory.

    Tasks of all event loops and threads may use it. Lock order: first the network, then the container, so there is no
    deadlock. Neither is reentrant.

    Args:
        wait_s: How long to wait for a gate and a lock, in seconds.
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

        Args:
            network: The network's name.
            wait_s: How long to wait, in seconds; None for the usual limit.

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
                async with asyncio.timeout(limit_s):
                    for door in doors:
                        await entered.enter_async_context(door)
            except TimeoutError as exc:
                raise NetworkBusy(network, waited_s=limit_s) from exc
            yield
