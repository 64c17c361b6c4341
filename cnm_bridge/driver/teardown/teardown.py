# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes an endpoint from any phase: runs DEL, removes link and namespace, and deletes the record; may be repeated.

There is no other implementation: a failed create, DeleteEndpoint and recovery after a crash all use this one.
"""

import time
from dataclasses import replace
from functools import partial

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker.advanced import RULES_BY_ADDRESS
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.progress import TeardownProgress
from cnm_bridge.driver.teardown.slots import TeardownSlots
from cnm_bridge.driver.teardown.unrecorded_links import UnrecordedLinks

__all__ = ["Teardown", "first_pending_plugin"]

log = structlog.get_logger()


class Teardown:
    """Tears an endpoint down.

    Args:
        store: The records.
        attachers: The attacher of each mode, which detaches its endpoints.
        owners: Finds the owners of addresses.
        unrecorded: Finds running containers whose endpoint has no record.
        slots: Limits concurrent plugins of teardowns.
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
        self._kept: dict[EndpointId, EndpointRecord] = {}
        self._restoring: set[EndpointId] = set()

    def keep(self, record: EndpointRecord) -> None:
        """Have the next teardown of an endpoint undo only what has been done since a record was stored.

        Then the record is stored again, in JOINING, so that another attempt can begin, and a crash tears all down.
        """
        self._kept[record.id] = record

    def keep_nothing(self, endpoint_id: EndpointId) -> bool:
        """Have the teardown of an endpoint undo everything, also if it has begun.

        Returns:
            False if it is too late: what is kept is being stored, under the endpoint's lock.
        """
        self._kept.pop(endpoint_id, None)
        return endpoint_id not in self._restoring

    async def __call__(self, record: EndpointRecord) -> None:
        """Undo an endpoint in any phase and remove its record, unless `keep` says otherwise.

        The caller holds the endpoint's lock.

        After an error the record still exists, and another call resumes: a plugin whose DEL has completed does not run
        again. Within this process that holds even if its completion could not be stored.

        Raises:
            CniError: A plugin's DEL failed.
            KernelError: The link or the namespace cannot be removed.
            StateError: The record cannot be written; everything else is undone.
        """
        started = time.monotonic()
        if record.addresses and _finds_rules_by_address(record):
            await self._unrecorded.look(record.addresses)
        progress = self._progress_of(record)
        if record.phase is not Phase.DELETING:
            record = replace(record, phase=Phase.DELETING)
            await progress.save(record)
        link = await self._detach(record, progress)
        kept = self._kept.pop(record.id, None)
        if kept is not None:
            await self._restore(kept)
            return
        if self._store.get_endpoint(record.id).phase is not Phase.DELETING:  # the disk was full; it may no longer be
            await self._store.put_endpoint(progress.with_deleted(record))
        await self._store.remove_endpoint(record.id)
        del self._progress[record.id]
        duration_ms = round((time.monotonic() - started) * 1000, 1)
        log.info("endpoint.torn_down", endpoint_id=record.id, link=link, duration_ms=duration_ms)

    async def _detach(self, record: EndpointRecord, progress: TeardownProgress) -> str:
        kept = self._kept.get(record.id)
        progress.kept = frozenset() if kept is None else _attached_plugins(kept)
        link = await self._attachers[record.attachment.mode].detach(record, progress)
        return link if kept is self._kept.get(record.id) else await self._detach(record, progress)

    async def _restore(self, kept: EndpointRecord) -> None:
        """Store what was there before an attempt to join, whose plugins have completed DEL."""
        self._restoring.add(kept.id)
        try:
            self._attachers[kept.attachment.mode].prepare_again(kept)
            await self._store.put_endpoint(replace(kept, phase=Phase.JOINING))
        finally:
            self._restoring.discard(kept.id)
        del self._progress[kept.id]
        log.info("endpoint.join_undone", endpoint_id=kept.id)

    def _progress_of(self, record: EndpointRecord) -> TeardownProgress:
        if record.id not in self._progress:
            find_owner = partial(self._owners.find_owner, leaving=self._progress.keys())
            self._progress[record.id] = TeardownProgress(
                self._store,
                find_owner,
                self._unrecorded,
                partial(self._slots.plugin, record.id, record.attachment.network),
            )
        progress = self._progress[record.id]
        progress.deleted |= frozenset(record.deleted)
        return progress


def _attached_plugins(record: EndpointRecord) -> frozenset[int]:
    """Return the indexes of the plugins for which a DEL is pending."""
    return frozenset(range(len(Endpoint(record).network.plugins))).difference(record.deleted)


def _finds_rules_by_address(record: EndpointRecord) -> bool:
    """Return whether a plugin whose DEL is pending finds its rules by address alone."""
    plugins = enumerate(Endpoint(record).network.plugins)
    return any(plugin.type in RULES_BY_ADDRESS for index, plugin in plugins if index not in record.deleted)


def first_pending_plugin(record: EndpointRecord) -> str | None:
    """Return the type of the plugin whose DEL is next, None if all have completed."""
    plugins = Endpoint(record).network.plugins
    return next((plugins[i].type for i in reversed(range(len(plugins))) if i not in record.deleted), None)
