# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A teardown in the background, perhaps of an endpoint that the previous run of the daemon left.

So its record may not be the latest, and one of its plugins may still run. Both are checked first.
"""

from dataclasses import replace
from typing import Final

import structlog

from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.teardown import Teardown
from state import EndpointRecord, Phase, Store

__all__ = ["ResumedTeardown"]

log = structlog.get_logger()

_OUTDATED: Final = "a container runs on it, so its record was not the latest"


class ResumedTeardown:
    """Tears an endpoint down, unless a container runs on it.

    Args:
        store: The records.
        teardown: The one undo.
        in_use: Tells what is in use, whatever the records say.
        orphaned_plugins: Kills the plugins that the previous run left behind.
    """

    def __init__(self, store: Store, teardown: Teardown, in_use: InUseCheck, orphaned_plugins: OrphanedPlugins) -> None:
        self._store = store
        self._teardown = teardown
        self._in_use = in_use
        self._orphaned_plugins = orphaned_plugins

    async def __call__(self, record: EndpointRecord) -> None:
        """Tear an endpoint down, or store it as joined; the caller holds its lock.

        Raises:
            PluginStillRuns: A plugin that the previous run left behind cannot be killed.
            CniError, KernelError, StateError: As the teardown, or its use cannot be known.
        """
        if not await self._keep_if_in_use(record):
            await self._orphaned_plugins.refuse(record.attachment_id)
            await self._teardown(record)

    async def _keep_if_in_use(self, record: EndpointRecord) -> bool:
        """Store an endpoint as joined if a container runs on it though it was not joined; return whether.

        Such an endpoint was finished, and its later record was lost. Docker deletes it when the container leaves it.
        """
        if record.phase not in {Phase.PENDING, Phase.READY} or not await self._in_use.find_in_use([record]):
            return False
        log.warning("endpoint.outdated", reason=_OUTDATED)
        if record.phase is Phase.PENDING:
            await self._store.put_endpoint(replace(record, phase=Phase.READY))
        await self._store.put_endpoint(replace(record, phase=Phase.JOINED))
        return True
