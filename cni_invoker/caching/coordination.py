# SPDX-License-Identifier: Apache-2.0
"""Keeps the operations of one cached runtime apart: locks, and what is being added."""

import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from cni_invoker.caching.cache import AttachmentCache
from cni_invoker.errors import AttachmentExists
from cni_invoker.inputs.attachment import AttachmentKey
from cni_invoker.locks import TaskLocks

__all__ = ["AddsInProgress", "CombinedLocks"]


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


class AddsInProgress:
    """The attachments that the tasks of one runtime are adding, in any thread."""

    def __init__(self) -> None:
        self._running: set[tuple[str, AttachmentKey]] = set()
        self._observed: list[set[tuple[str, AttachmentKey]]] = []
        self._mutex = threading.Lock()

    @contextmanager
    def adding(self, network: str, key: AttachmentKey) -> Iterator[None]:
        """Count an attachment as being added while the body runs.

        Raises:
            AttachmentExists: Another task is adding it; the body has not run.
        """
        identity = (network, key)
        with self._mutex:
            if identity in self._running:
                raise AttachmentExists(network, key.container_id, key.ifname)
            for observed in self._observed:
                observed.add(identity)
            self._running.add(identity)
        try:
            yield
        finally:
            with self._mutex:
                self._running.remove(identity)

    @contextmanager
    def observed(self) -> Iterator[Collection[tuple[str, AttachmentKey]]]:
        """Give the network and key of each attachment that is being added when the body begins, or while it runs."""
        with self._mutex:
            observed = set(self._running)
            self._observed.append(observed)
        try:
            yield observed
        finally:
            with self._mutex:
                # by identity: two observers may have equal sets
                self._observed = [other for other in self._observed if other is not observed]
