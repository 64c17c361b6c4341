# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The teardowns that the previous run of the daemon did not finish: they are taken up at the start."""

import asyncio
from typing import Final

from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue
from state import Phase, Store

__all__ = ["UnfinishedTeardowns"]

_UNFINISHED: Final = frozenset({Phase.PENDING, Phase.DELETING})


class UnfinishedTeardowns:
    """Finds the teardowns that the previous run did not finish.

    Args:
        store: The records.
        teardowns: Tears endpoints down.
        orphaned_plugins: Kills the plugins that a killed daemon has left behind.
        boot_id: The kernel's boot ID.
    """

    def __init__(self, store: Store, teardowns: TeardownQueue, orphaned_plugins: OrphanedPlugins, boot_id: str) -> None:
        self._store = store
        self._teardowns = teardowns
        self._orphaned_plugins = orphaned_plugins
        self._boot_id = boot_id

    async def add(self) -> int:
        """Add the teardowns of all endpoints that the previous run of the daemon did not finish; return how many.

        Endpoints of an earlier boot are among them: their links and namespaces are gone, their reservations are not,
        and Docker makes new endpoints for the containers that it starts again.

        A killed daemon leaves its running plugins behind. All of them are killed first. As long as one cannot be
        killed, the teardown of its endpoint fails and is repeated.
        """
        unfinished = [
            record.id
            for record in self._store.endpoints()
            if record.phase in _UNFINISHED or record.boot_id != self._boot_id
        ]
        await self._orphaned_plugins.end()
        for endpoint_id in unfinished:
            self._teardowns.add_later(endpoint_id)
            await asyncio.sleep(0)  # there may be ten thousand
        return len(unfinished)
