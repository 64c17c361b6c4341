# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins' GC on a locked network and passes every cached attachment as valid."""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from cni_invoker.caching.cache import AttachmentReader
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.inputs.attachment import AttachmentKey, freeze_keys
from cni_invoker.operations.chain import has_gc
from cni_invoker.operations.runtime import Runtime

__all__ = ["collect_garbage"]


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
