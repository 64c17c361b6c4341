# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Deletes each stale attachment of a cached runtime, then runs the plugins' GC with each list used for ADD."""

from collections.abc import Collection

from cni_invoker.caching.adds_in_progress import AddsInProgress
from cni_invoker.caching.cache import AttachmentCache, CachedAttachment
from cni_invoker.caching.combined_locks import CombinedLocks
from cni_invoker.caching.delete_cached import CachedDeletion
from cni_invoker.caching.locked_gc import collect_garbage
from cni_invoker.caching.stored_inputs import lists_of_adds
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import CniError, GcFailed
from cni_invoker.inputs.attachment import AttachmentKey
from cni_invoker.operations.runtime import Runtime

__all__ = ["DeleteStale"]


class DeleteStale:
    """Deletes stale cached attachments and runs GC.

    Args:
        runtime: Runs the plugins.
        cache: The cache of attachments.
        deletion: Deletes a cached attachment.
        locks: The locks of containers and networks.
        adds: What is being added meanwhile, and therefore not stale.
    """

    def __init__(
        self,
        runtime: Runtime,
        cache: AttachmentCache,
        deletion: CachedDeletion,
        *,
        locks: CombinedLocks,
        adds: AddsInProgress,
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._deletion = deletion
        self._locks = locks
        self._adds = adds

    async def run(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        """Delete every cached attachment to a network that is not valid, then run the plugins' GC.

        Raises:
            GcFailed: Contains all errors; everything else has been done.
            CacheError: The attachments cannot be listed; nothing has been done.
        """
        errors: list[CniError] = []
        with self._adds.observed() as spared:
            cached_attachments = await self._cache.list(network.name)
            for cached in cached_attachments:
                if cached.attachment.key not in valid:
                    try:
                        await self._delete_stale(cached, network, spared)
                    except CniError as exc:
                        errors.append(exc)
            for used in lists_of_adds(network, cached_attachments):
                try:
                    await self._gc_plugins(used, valid)
                except GcFailed as exc:
                    errors.extend(exc.errors)
                except CniError as exc:
                    errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def _delete_stale(
        self, cached: CachedAttachment, network: NetworkConfigurationList, spared: Collection[tuple[str, AttachmentKey]]
    ) -> None:
        """Delete a stale attachment, unless it has been replaced or is in use once it is locked."""
        key = cached.attachment.key
        async with self._locks.attachment(network.name, key.container_id):
            if (network.name, key) not in spared and await self._cache.find(network.name, key) == cached:
                await self._deletion.run(cached, network)

    async def _gc_plugins(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        async with self._locks.network(network.name):
            await collect_garbage(self._runtime, network, (self._cache,), valid=valid, wait_s=self._locks.wait_s)
