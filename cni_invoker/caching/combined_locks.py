# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Locks a container against other tasks and processes, and a network against other tasks of the runtime."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from cni_invoker.caching.cache import AttachmentCache
from cni_invoker.operations.task_locks import TaskLocks

__all__ = ["CombinedLocks"]


class CombinedLocks:
    """Locks containers and networks.

    Args:
        cache: Locks against other processes.
        wait_s: How long to wait for other tasks, and as long again for other processes, in seconds.

    Attributes:
        wait_s: The same.
    """

    def __init__(self, cache: AttachmentCache, wait_s: float) -> None:
        self._cache = cache
        self._locks = TaskLocks(wait_s)
        self.wait_s = wait_s

    @asynccontextmanager
    async def attachment(self, network: str, container_id: str) -> AsyncIterator[None]:
        """Run the body while no other task or process uses the container or runs GC on the network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
            CacheError: The cache cannot be locked; the body has not run.
        """
        async with (
            self._locks.attachment(network, container_id),
            self._cache.hold(network, container_id, wait_s=self.wait_s),
        ):
            yield

    def network(self, network: str) -> AbstractAsyncContextManager[None]:
        """Run the body while no other task uses the network; other processes are not locked out.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._locks.exclusive(network)
