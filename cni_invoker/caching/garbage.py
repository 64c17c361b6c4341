# SPDX-License-Identifier: Apache-2.0
"""GC with a cache: stale attachments are deleted, then the plugins' GC receives every cached attachment as valid."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack

from cni_invoker.caching.cache import AttachmentCache, AttachmentReader, CachedAttachment
from cni_invoker.caching.coordination import AddsInProgress, CombinedLocks
from cni_invoker.caching.delete_cached import CachedDeletion
from cni_invoker.caching.stored_inputs import lists_of_adds
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import CniError, GcFailed
from cni_invoker.inputs.attachment import AttachmentKey, freeze_keys
from cni_invoker.operations.chain import has_gc
from cni_invoker.operations.runtime import Runtime

__all__ = ["DeleteStale", "collect_garbage"]


async def collect_garbage(
    runtime: Runtime,
    network: NetworkConfigurationList,
    readers: Sequence[AttachmentReader],
    *,
    valid: Iterable[AttachmentKey] = (),
    wait_s: float,
) -> None:
    """Have the plugins of a network clean up what belongs to no attachment (CNI SPEC "Garbage collection").

    While the valid attachments are collected and GC runs, the network is locked: for other tasks of `runtime` and for
    other processes that use one of the caches. Every cached attachment is valid, whatever its state and the list that
    it was added with; plugins delete the resources of all others. If the list has no GC (before 1.1.0, or with
    `disableGC`), nothing is executed or locked.

    Args:
        runtime: Runs the plugins.
        network: The list.
        readers: Caches of attachments; together they must have every attachment to the network.
        valid: Further attachments to keep.
        wait_s: How long to wait for other processes, per cache, and again for other tasks, in seconds; newcomers wait
            meanwhile.

    Raises:
        GcFailed: Plugins failed; all the others have run.
        NetworkBusy, CacheError: Nothing has been executed. A damaged record may be a valid attachment.
        TypeError: An item of `valid` is not an `AttachmentKey`; nothing has been executed.
    """
    keys = freeze_keys(valid)
    if not has_gc(network):
        return
    async with AsyncExitStack() as entered:
        # The caches before the runtime, in the same order as ADD, to prevent deadlock.
        for reader in readers:
            await entered.enter_async_context(reader.hold(network.name, None, wait_s=wait_s))
        collecting = await entered.enter_async_context(runtime.collecting(network, wait_s=wait_s))
        known = [cached.attachment.key for reader in readers for cached in await reader.list(network.name, whole=True)]
        await collecting.gc((*keys, *known))


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
