# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes an endpoint from any phase: runs DEL, removes link and namespace, and deletes the record; may be repeated.

There is no other undo. Before it begins, it looks whether a container uses the endpoint although its record is out of
date, and whether a plugin that a killed daemon left running still works on it.
"""

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AttachmentId, EndpointRecord, Phase, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker.advanced import kill_orphaned_plugins
from cni_invoker.errors import PluginStillRuns
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.planning.ports import plugins_without_delete
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import Pending, PendingTeardowns, Undo

log = structlog.get_logger()

_ORPHANS_LIMIT_S: Final = 2.0
"""Limit for all orphaned plugins together: the daemon answers no call before."""

_OUTDATED: Final = "a container runs on it, so its record was not up to date"


@dataclass(slots=True)
class OrphanedPlugins:
    """Kills the plugins of the previous run, and remembers the attachments of those that still run."""

    directory: Path
    """The directory in which the daemon records its running plugins."""
    _attachments: frozenset[str] = field(default=frozenset(), init=False)

    async def kill(self) -> None:
        """Kill all plugins that still run; returns after two seconds at the latest.

        This includes plugins that publish ports of a joined endpoint: they would interfere with publishing them again.
        """
        try:
            killed, running = await asyncio.to_thread(
                kill_orphaned_plugins, self.directory, None, limit_s=_ORPHANS_LIMIT_S
            )
            if killed:
                log.warning("plugins.ended", pids=killed)
            self._attachments = frozenset(plugin.container_id for plugin in running)
        except OSError as exc:
            log.warning("plugins.not_ended", directory=str(self.directory), error=str(exc))

    async def ensure_none(self, attachment_id: AttachmentId) -> None:
        """Ensure that no plugin of the previous run is still running for an attachment; kill it again if one is.

        Raises `PluginStillRuns` if it does not end, because it hangs in the kernel.
        """
        if attachment_id in self._attachments:
            _, running = await asyncio.to_thread(
                kill_orphaned_plugins, self.directory, [attachment_id], limit_s=_ORPHANS_LIMIT_S
            )
            if running:
                raise PluginStillRuns(attachment_id, [str(plugin) for plugin in running])
            self._attachments -= {attachment_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class Teardown:
    """Tears an endpoint down."""

    store: Store
    attachers: Attachers
    owners: AddressOwners
    pending: PendingTeardowns
    liveness: Liveness
    orphaned_plugins: OrphanedPlugins

    async def __call__(self, record: EndpointRecord) -> None:
        """Tear an endpoint down, or store it as joined if a container runs on it. The caller holds its lock.

        Errors as `undo`, and `PluginStillRuns`; a `KernelError` also if it cannot be checked whether the endpoint is in
        use.
        """
        if not await self._keep_if_in_use(record):
            await self.orphaned_plugins.ensure_none(record.attachment.id)
            await self.undo(record)

    async def _keep_if_in_use(self, record: EndpointRecord) -> bool:
        """Return whether a container runs on an endpoint that is not stored as joined; if so, store it as joined.

        Such an endpoint was created and joined, and its latest record was lost. Docker deletes it later.
        """
        if record.phase not in {Phase.PENDING, Phase.READY, Phase.JOINING} or not await self.liveness.find_in_use(
            [record]
        ):
            return False
        log.warning("endpoint.outdated", reason=_OUTDATED)
        await self.store.put_endpoint(self.attachers[record.attachment.mode].joined_record(record))
        return True

    async def undo(self, record: EndpointRecord) -> None:
        """Undo an endpoint in any phase and remove its record, or store again what its pending teardown keeps.

        The caller holds the endpoint's lock.

        After an error the record still exists, and another call resumes: a plugin whose DEL has completed does not run
        again. Within this process that holds even if its completion could not be stored.

        Raises:
            CniError: A plugin's DEL failed.
            KernelError: The link or the namespace cannot be removed.
            StateError: The record cannot be written; everything else is undone.
        """
        started = time.monotonic()
        pending = self.pending.add(record.id)
        pending.has_begun = True
        pending.deleted |= plugins_without_delete(record)
        if record.phase is not Phase.DELETING:
            record = replace(record, phase=Phase.DELETING)
            await self._progress(pending).save(record)
        link = await self._detach(record, pending)
        if pending.undo is not None and pending.undo.kept is not None:
            await self._restore(pending, pending.undo, pending.undo.kept)
            return
        if self.store.get_endpoint(record.id).phase is not Phase.DELETING:  # the disk was full; it may no longer be
            await self.store.put_endpoint(_with_deleted(record, pending))
        await self.store.remove_endpoint(record.id)
        duration_ms = round((time.monotonic() - started) * 1000, 1)
        log.info("endpoint.torn_down", endpoint_id=record.id, link=link, duration_ms=duration_ms)

    async def _detach(self, record: EndpointRecord, pending: Pending) -> str:
        kept = pending.kept
        link = await self.attachers[record.attachment.mode].detach(record, self._progress(pending))
        return link if kept is pending.kept else await self._detach(record, pending)

    async def _restore(self, pending: Pending, undo: Undo, kept: EndpointRecord) -> None:
        """Store what was there before an attempt to join, whose plugins have completed DEL.

        It is stored in JOINING, so that another attempt can begin, and a crash tears all down.
        """
        undo.is_restoring = True
        try:
            self.attachers[kept.attachment.mode].prepare_again(kept)
            await self.store.put_endpoint(replace(kept, phase=Phase.JOINING))
        finally:
            undo.kept, undo.is_restoring = None, False
        pending.deleted = frozenset()
        log.info("endpoint.join_undone", endpoint_id=kept.id)

    def _progress(self, pending: Pending) -> "_Progress":
        kept = frozenset[int]()
        if pending.kept is not None:  # the plugins for which a DEL is pending
            kept = frozenset(range(len(Endpoint(pending.kept).network.plugins))) - plugins_without_delete(pending.kept)
        return _Progress(store=self.store, owners=self.owners, pending=pending, kept=kept)


@dataclass(slots=True, kw_only=True)
class _Progress:
    """Which plugins have completed DEL, for the attacher: a `DeleteProgress` (`driver/attach/attacher.py`)."""

    store: Store
    owners: AddressOwners
    pending: Pending
    kept: frozenset[int]
    """The indexes of the plugins whose DEL does not run in this attempt."""

    @property
    def deleted(self) -> frozenset[int]:
        """The plugins whose DEL must not run: it has completed, or what the plugin has made is kept."""
        return self.pending.deleted | self.kept

    @deleted.setter
    def deleted(self, deleted: frozenset[int]) -> None:
        self.pending.deleted = deleted - self.kept

    async def save(self, record: EndpointRecord) -> None:
        """Store a record with the progress. A failure is logged: a full disk must not keep the address and the link."""
        try:
            await self.store.put_endpoint(_with_deleted(record, self.pending))
        except StateUnusable as exc:
            log.warning("endpoint.not_stored", endpoint_id=record.id, error=str(exc))

    async def is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs the rules that a plugin's DEL would remove by address.

        Raises `AddressClaimed` if an endpoint that is being created may need them.
        """
        owner = self.owners.find_owner(record, plugin)
        if owner is not None:
            log.info("endpoint.address_has_new_owner", endpoint_id=record.id, owner=owner, plugin=plugin)
        return owner is not None


def _with_deleted(record: EndpointRecord, pending: Pending) -> EndpointRecord:
    return replace(record, deleted=tuple(sorted(pending.deleted)))


def first_pending_plugin(record: EndpointRecord) -> str | None:
    """Return the type of the plugin whose DEL is next, None if all have completed."""
    plugins, done = Endpoint(record).network.plugins, plugins_without_delete(record)
    return next((plugins[i].type for i in reversed(range(len(plugins))) if i not in done), None)
