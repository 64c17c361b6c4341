# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""GC over what is remembered: plugins are told all attachments there are, while none can come or go."""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from cni_invoker.attachment import AttachmentKey, freeze_keys
from cni_invoker.caching.cache import AttachmentReader
from cni_invoker.chain import has_gc
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.runtime import Runtime

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

    What is valid is found out while nobody adds or deletes there: no task of `runtime`, and no other process that has
    one of the caches. Whatever any of them remembers is valid, in whichever phase it is and whatever list it was added
    with; who is in none of them loses what he has. Nothing is executed, and nobody kept waiting, where the list has no
    GC: before 1.1.0, or with `disableGC`.

    Args:
        runtime: Runs the plugins.
        network: The list.
        readers: Know the attachments to the network; all of them together must know all there are.
        valid: Further attachments to be left alone.
        wait_s: How long to wait for the processes of each cache, and as long again for other tasks, in seconds; others
            that come are kept waiting meanwhile.

    Raises:
        GcFailed: Plugins failed; all the others have run.
        NetworkBusy, CacheError: Nothing has been executed. What is damaged in a cache may be somebody's.
        TypeError: Something in `valid` is no `AttachmentKey`; nothing has been executed.
    """
    keys = freeze_keys(valid)
    if not has_gc(network):
        return
    async with AsyncExitStack() as entered:
        # The caches before the runtime, as whoever adds does it: so nobody waits in a circle.
        for reader in readers:
            await entered.enter_async_context(reader.hold(network.name, None, wait_s=wait_s))
        collecting = await entered.enter_async_context(runtime.collecting(network, wait_s=wait_s))
        known = [cached.attachment.key for reader in readers for cached in await reader.list(network.name, whole=True)]
        await collecting.gc((*keys, *known))
