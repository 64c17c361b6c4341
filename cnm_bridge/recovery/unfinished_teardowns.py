# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Queues teardowns when the daemon starts.

An endpoint is torn down if it was left half created or half deleted, dates from an earlier boot, or is dead.
"""

import asyncio
from typing import Final

import structlog

from cni_bridge_state import Phase, Store
from cnm_bridge.kernel import KernelError
from cnm_bridge.teardown.in_use_check import InUseCheck
from cnm_bridge.teardown.liveness import DEAD, Liveness
from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue

__all__ = ["UnfinishedTeardowns"]

log = structlog.get_logger()

_UNFINISHED: Final = frozenset({Phase.PENDING, Phase.JOINING, Phase.DELETING})


class UnfinishedTeardowns:
    """Finds endpoints that the previous run left half created or half deleted, and dead ones; adds their teardowns.

    Args:
        store: The records.
        teardowns: Tears endpoints down.
        orphaned_plugins: Kills the plugins that a killed daemon left running.
        liveness: Finds dead endpoints.
        in_use: Finds endpoints in use.
        boot_id: The kernel's boot ID.
    """

    def __init__(
        self,
        *,
        store: Store,
        teardowns: TeardownQueue,
        orphaned_plugins: OrphanedPlugins,
        liveness: Liveness,
        in_use: InUseCheck,
        boot_id: str,
    ) -> None:
        self._store = store
        self._teardowns = teardowns
        self._orphaned_plugins = orphaned_plugins
        self._liveness = liveness
        self._in_use = in_use
        self._boot_id = boot_id

    async def add(self) -> int:
        """Add the teardowns of all such endpoints; return their number. No calls are running at that time."""
        return await self._add_unfinished() + await self._add_dead()

    async def _add_unfinished(self) -> int:
        """Add the teardowns of endpoints that are half created or half deleted.

        This includes the endpoints of an earlier boot: their reservations still exist, their links and namespaces do
        not, and Docker creates new endpoints when it restarts the containers.

        Plugins that a killed daemon left running are killed first. While such a plugin cannot be killed, the teardown
        of its endpoint fails and is repeated.
        """
        unfinished = [
            record.id
            for record in self._store.endpoints()
            if record.phase in _UNFINISHED or record.boot_id != self._boot_id
        ]
        await self._orphaned_plugins.kill()
        for endpoint_id in unfinished:
            self._teardowns.add_later(endpoint_id)
            await asyncio.sleep(0)  # there may be ten thousand
        return len(unfinished)

    async def _add_dead(self) -> int:
        """Add the teardowns of endpoints that the kernel has lost; one look is enough, because no calls are running."""
        try:
            dead = await self._liveness.find_dead(self._store.endpoints())
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return 0
        gone = await self._in_use.without_in_use(dead)
        for record in gone:
            log.warning("endpoint.dead", endpoint_id=record.id, reason=DEAD)
            self._teardowns.add_later(record.id)
            await asyncio.sleep(0)
        return len(gone)
