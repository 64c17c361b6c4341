# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes leftovers at once for a new endpoint that was refused, because they may hold what it needs."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from cni_bridge_state import AttachmentId, EndpointId
from cnm_bridge.core.model.naming import alternative_name
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.orphans.orphan_audit import Leftovers, OrphanAudit
from cnm_bridge.driver.recovery.orphans.remove_leftovers import RemoveLeftovers
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel

__all__ = ["EvictLeftovers"]


@dataclass(slots=True, kw_only=True)
class EvictLeftovers:
    """Begins to remove the leftovers on a CNI network.

    The engine is not asked, because it answers no question while dockerd boots. An endpoint that it knows and whose
    link is in no sandbox is removed, too: without its record it cannot be joined.

    Attributes:
        audit: Finds the leftovers.
        networks: Knows the lists in use.
        kernel: Finds the links in sandboxes.
        remove: Removes the leftovers of one endpoint.
        teardowns: The pending teardowns.
        run_dir: The parent directory of our own mounts.
    """

    audit: OrphanAudit
    networks: NetworkService
    kernel: Kernel
    remove: RemoveLeftovers
    teardowns: TeardownQueue
    run_dir: Path
    _look: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _looked_at: float = field(default=-inf, init=False)
    _found: Mapping[AttachmentId, Leftovers] = field(default_factory=dict, init=False)

    async def __call__(self, network: str, until: float) -> frozenset[EndpointId]:
        """Begin to remove the leftovers on a CNI network; return the endpoints that are torn down for that.

        The caller must not cancel this: a record that is stored without a teardown would hold its address until the
        next start. So it ends by itself between two endpoints.

        Args:
            network: The name of the CNI network.
            until: When to begin no more, in event loop time.

        Raises:
            KernelError: Links or namespaces cannot be listed.
        """
        clock = asyncio.get_running_loop().time
        found = await self._find(clock())
        here = [one for one in found.values() if any(artifact.network == network for artifact in one.artifacts)]
        begun: set[EndpointId] = set()
        for leftovers in here:
            if clock() >= until:
                break
            await self.remove(leftovers)
            endpoint_id = EndpointId(leftovers.attachment_id)
            if self.teardowns.is_pending(endpoint_id):
                begun.add(endpoint_id)
        return frozenset(begun)

    async def _find(self, since: float) -> Mapping[AttachmentId, Leftovers]:
        """Return the leftovers whose links are in no sandbox, as one look found them that began after `since`.

        Calls that wait for each other's look share the next one: at a boot many endpoints are refused at once.
        """
        async with self._look:
            if self._looked_at < since:
                looked_at = asyncio.get_running_loop().time()
                found = await self.audit.find_leftovers(self.networks.bound_names(), self.networks.bound_documents())
                in_use = frozenset[str]()
                if found:
                    in_use = await self.kernel.altnames_in_use(self.run_dir)
                    in_use |= await self.kernel.altnames_mounted(self.run_dir)
                self._found = {key: one for key, one in found.items() if alternative_name(key) not in in_use}
                self._looked_at = looked_at
            return self._found
