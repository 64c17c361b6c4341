# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes an endpoint from any phase: runs DEL, removes link and namespace, and deletes the record; may be repeated.

There is no other implementation: a failed create, DeleteEndpoint and recovery after a crash all use this one.
"""

import time
from dataclasses import replace
from functools import partial

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, Store
from cnm_bridge.attach.attacher import Attachers
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.progress import TeardownProgress
from cnm_bridge.teardown.slots import TeardownSlots
from cnm_bridge.teardown.unrecorded_links import UnrecordedLinks

__all__ = ["Teardown", "first_pending_plugin"]

log = structlog.get_logger()


class Teardown:
    """Tears an endpoint down.

    Args:
        store: The records.
        attachers: The attacher of each mode, which detaches its endpoints.
        owners: Finds the owners of addresses.
        unrecorded: Finds running containers whose endpoint has no record.
        slots: Limits concurrent plugins of teardowns in the background.
    """

    def __init__(
        self,
        store: Store,
        attachers: Attachers,
        owners: AddressOwners,
        unrecorded: UnrecordedLinks,
        slots: TeardownSlots,
    ) -> None:
        self._store = store
        self._attachers = attachers
        self._owners = owners
        self._unrecorded = unrecorded
        self._slots = slots
        self._progress: dict[EndpointId, TeardownProgress] = {}

    async def __call__(self, record: EndpointRecord) -> None:
        """Undo an endpoint in any phase and remove its record. The caller holds the endpoint's lock.

        After an error the record still exists, and another call resumes: a plugin whose DEL has completed does not run
        again. Within this process that holds even if its completion could not be stored.

        Raises:
            CniError: A plugin's DEL failed.
            KernelError: The link or the namespace cannot be removed.
            StateError: The record cannot be written; everything else is undone.
        """
        started = time.monotonic()
        progress = self._progress_of(record)
        if record.phase is not Phase.DELETING:
            record = replace(record, phase=Phase.DELETING)
            await progress.save(record)
        link = await self._attachers[record.attach_mode].detach(record, progress)
        if self._store.get_endpoint(record.id).phase is not Phase.DELETING:  # the disk was full; it may no longer be
            await self._store.put_endpoint(progress.with_deleted(record))
        await self._store.remove_endpoint(record.id)
        del self._progress[record.id]
        duration_ms = round((time.monotonic() - started) * 1000, 1)
        log.info("endpoint.torn_down", endpoint_id=record.id, link=link, duration_ms=duration_ms)

    def _progress_of(self, record: EndpointRecord) -> TeardownProgress:
        if record.id not in self._progress:
            find_owner = partial(self._owners.find_owner, leaving=self._progress.keys())
            self._progress[record.id] = TeardownProgress(
                self._store, find_owner, self._unrecorded, partial(self._slots.find_plugin_slot, record.id)
            )
        progress = self._progress[record.id]
        progress.deleted |= frozenset(record.deleted)
        return progress


def first_pending_plugin(record: EndpointRecord) -> str | None:
    """Return the type of the plugin whose DEL is next, None if all have completed."""
    plugins = Endpoint(record).network.plugins
    return next((plugins[i].type for i in reversed(range(len(plugins))) if i not in record.deleted), None)
