# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.recovery`."""

from dataclasses import dataclass

from cnm_bridge.assembly.attach import AttachRoom
from cnm_bridge.assembly.ipam import IpamRoom
from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.assembly.teardown import TeardownRoom
from cnm_bridge.driver.recovery.comparison import Comparison
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.leftover_search import LeftoverSearch
from cnm_bridge.driver.recovery.leftovers import RemoveLeftovers
from cnm_bridge.driver.recovery.lost_records import LostRecords
from cnm_bridge.driver.recovery.rebuild_endpoint import RebuildEndpoint
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.recovery.trusted_engine import TrustedEngine
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRoom:
    """The room `recovery`."""

    unfinished: UnfinishedTeardowns
    reconciler: Reconciler
    rebuild_endpoint: RebuildEndpoint
    lease_keeper: LeaseKeeper


def make_recovery(
    resources: Resources, *, networks: NetworkRoom, attach: AttachRoom, teardown: TeardownRoom, ipam: IpamRoom
) -> RecoveryRoom:
    """Return the objects of the room."""
    driver = resources.settings.driver_name
    search = LeftoverSearch(resources.store, resources.kernel, resources.settings.run_dir)
    lost_records = LostRecords(kernel=resources.kernel, run_dir=resources.settings.run_dir, boot_id=resources.boot_id)
    rebuild_endpoint = RebuildEndpoint(
        store=resources.store,
        networks=networks.service,
        engine=resources.engine,
        engine_import=networks.engine_import,
        locks=attach.locks,
        lost_records=lost_records,
        kernel=resources.kernel,
        run_dir=resources.settings.run_dir,
    )
    remove_leftovers = RemoveLeftovers(
        store=resources.store,
        networks=networks.service,
        kernel=resources.kernel,
        teardowns=teardown.queue,
        locks=attach.locks,
        run_dir=resources.settings.run_dir,
        lost_records=lost_records,
        search=search,
    )
    teardown.dead.when_none_is_dead(remove_leftovers.on_network)
    engine = TrustedEngine(
        store=resources.store,
        engine=resources.engine,
        engine_import=networks.engine_import,
        release=resources.release,
        driver=driver,
    )
    return RecoveryRoom(
        unfinished=UnfinishedTeardowns(
            store=resources.store,
            teardowns=teardown.queue,
            orphaned_plugins=teardown.orphaned_plugins,
            liveness=teardown.liveness,
            in_use=teardown.in_use,
            journal=resources.journal,
            boot_id=resources.boot_id,
            limit_s=resources.settings.recovery_timeout_s,
            boot_limit_s=resources.settings.boot_recovery_timeout_s,
        ),
        reconciler=Reconciler(
            engine=engine,
            comparison=Comparison(resources.store, engine, teardown.liveness, networks.service, search),
            in_use=teardown.in_use,
            networks=networks.service,
            managed=networks.managed,
            teardowns=teardown.queue,
            rebuild_endpoint=rebuild_endpoint,
            remove_leftovers=remove_leftovers,
            unclaimed_addresses=ipam.unclaimed,
            interval_s=resources.settings.reconcile_interval_s,
            grace_s=resources.settings.reconcile_grace_s,
        ),
        rebuild_endpoint=rebuild_endpoint,
        lease_keeper=LeaseKeeper(resources.store, attach.dhcp_daemons, attach.leases, attach.locks),
    )
