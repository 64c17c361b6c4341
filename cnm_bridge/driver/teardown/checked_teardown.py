# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs a background teardown, after two checks.

No container uses the endpoint, although its record may be out of date; and no plugin that a killed daemon left running
still works on it.
"""

from dataclasses import replace
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.teardown.in_use_check import InUseCheck
from cnm_bridge.driver.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.driver.teardown.teardown import Teardown

__all__ = ["CheckedTeardown"]

log = structlog.get_logger()

_OUTDATED: Final = "a container runs on it, so its record was not up to date"


class CheckedTeardown:
    """Tears an endpoint down, unless a container runs on it.

    Args:
        store: The records.
        attachers: The attacher of each mode, which knows what a joined endpoint's record has.
        teardown: Undoes all that was done for an endpoint.
        in_use: Finds endpoints in use.
        orphaned_plugins: Kills the plugins that a killed daemon left running.
    """

    def __init__(
        self,
        store: Store,
        attachers: Attachers,
        teardown: Teardown,
        in_use: InUseCheck,
        orphaned_plugins: OrphanedPlugins,
    ) -> None:
        self._store = store
        self._attachers = attachers
        self._teardown = teardown
        self._in_use = in_use
        self._orphaned_plugins = orphaned_plugins

    async def __call__(self, record: EndpointRecord) -> None:
        """Tear an endpoint down, or store it as joined if a container runs on it. The caller holds its lock.

        Raises:
            PluginStillRuns: A plugin of the previous run is still running for the endpoint and cannot be killed.
            KernelError: As `Teardown`, or it cannot be checked whether the endpoint is in use.
            CniError, StateError: See `Teardown`.
        """
        if not await self._keep_if_in_use(record):
            await self._orphaned_plugins.ensure_none(record.attachment.id)
            await self._teardown(record)

    async def _keep_if_in_use(self, record: EndpointRecord) -> bool:
        """Return whether a container runs on an endpoint that is not stored as joined; if so, store it as joined.

        Such an endpoint was created and joined, and its latest record was lost. Docker deletes it later.
        """
        if record.phase not in {Phase.PENDING, Phase.READY, Phase.JOINING} or not await self._in_use.find_in_use(
            [record]
        ):
            return False
        log.warning("endpoint.outdated", reason=_OUTDATED)
        if record.phase is Phase.PENDING:
            await self._store.put_endpoint(replace(record, phase=Phase.READY))
        await self._store.put_endpoint(self._attachers[record.attachment.mode].as_joined(record))
        return True
