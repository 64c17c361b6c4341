# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Adds the teardowns that the previous run of the daemon left unfinished, when the daemon starts."""

import asyncio
from typing import Final

from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue
from state import Phase, Store

__all__ = ["UnfinishedTeardowns"]

_UNFINISHED: Final = frozenset({Phase.PENDING, Phase.DELETING})


class UnfinishedTeardowns:
    """Finds endpoints that the previous run left half created or half deleted, and adds their teardowns.

    Args:
        store: The records.
        teardowns: Tears endpoints down.
        orphaned_plugins: Kills the plugins that a killed daemon left running.
        boot_id: The kernel's boot ID.
    """

    def __init__(self, store: Store, teardowns: TeardownQueue, orphaned_plugins: OrphanedPlugins, boot_id: str) -> None:
        self._store = store
        self._teardowns = teardowns
        self._orphaned_plugins = orphaned_plugins
        self._boot_id = boot_id

    async def add(self) -> int:
        """Add the teardowns of all such endpoints; return their number.

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
