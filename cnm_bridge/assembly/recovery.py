# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes the objects of the room `recovery`."""

from dataclasses import dataclass

from cni_invoker import FileCache
from cnm_bridge.assembly.attach import AttachRoom
from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.surroundings import Surroundings
from cnm_bridge.assembly.teardown import TeardownRoom
from cnm_bridge.recovery.adopt import AdoptEndpoint
from cnm_bridge.recovery.inventory_check import InventoryCheck
from cnm_bridge.recovery.leftovers import RemoveLeftovers
from cnm_bridge.recovery.orphans import OrphanAudit
from cnm_bridge.recovery.plugin_gc import PluginGc
from cnm_bridge.recovery.reconciler import Reconciler
from cnm_bridge.recovery.store_attachments import EndpointCache
from cnm_bridge.recovery.unfinished import UnfinishedTeardowns

__all__ = ["RecoveryRoom", "make_recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRoom:
    """The room `recovery`."""

    unfinished: UnfinishedTeardowns
    reconciler: Reconciler
    adopt: AdoptEndpoint
    audit: OrphanAudit
    plugin_gc: PluginGc
    inventory_check: InventoryCheck


def make_recovery(
    outside: Surroundings, *, networks: NetworkRoom, attach: AttachRoom, teardown: TeardownRoom
) -> RecoveryRoom:
    """Return the objects of the room."""
    driver = outside.settings.socket.stem
    audit = OrphanAudit(outside.store, outside.kernel, outside.settings.run_dir)
    adopt = AdoptEndpoint(
        store=outside.store,
        networks=networks.service,
        engine_import=networks.engine_import,
        locks=attach.locks,
        new_records=attach.new_records,
    )
    remove_leftovers = RemoveLeftovers(
        store=outside.store,
        networks=networks.service,
        kernel=outside.kernel,
        teardowns=teardown.queue,
        locks=attach.locks,
        run_dir=outside.settings.run_dir,
        new_records=attach.new_records,
    )
    return RecoveryRoom(
        unfinished=UnfinishedTeardowns(outside.store, teardown.queue, teardown.orphaned_plugins, outside.boot_id),
        reconciler=Reconciler(
            store=outside.store,
            engine=outside.engine,
            liveness=teardown.liveness,
            in_use=teardown.in_use,
            networks=networks.service,
            teardowns=teardown.queue,
            engine_import=networks.engine_import,
            adopt=adopt,
            audit=audit,
            remove_leftovers=remove_leftovers,
            driver=driver,
            interval_s=outside.settings.reconcile_interval_s,
            grace_s=outside.settings.reconcile_grace_s,
        ),
        adopt=adopt,
        audit=audit,
        plugin_gc=PluginGc(outside.runtime, EndpointCache(outside.store), [FileCache()]),
        inventory_check=InventoryCheck(
            store=outside.store,
            engine=outside.engine,
            kernel=outside.kernel,
            driver=driver,
            run_dir=outside.settings.run_dir,
        ),
    )
