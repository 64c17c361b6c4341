# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: makes all objects of the daemon, each after those that it depends on; starts none."""

import socket
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from cni_bridge_state import AttachMode, NetworkId
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.planning.ports import PortClaims
from cnm_bridge.core.settings import Scope, Settings
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.detachers import MoveDetacher, SandboxDetacher
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.attach.move_attacher import MoveAttacher
from cnm_bridge.driver.attach.place_finder import PlaceFinder, SandboxOwners
from cnm_bridge.driver.attach.sandbox_attacher import SandboxAttacher
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints, Unpublished
from cnm_bridge.driver.endpoints.attempts import Attempts
from cnm_bridge.driver.endpoints.container_files import ContainerFiles
from cnm_bridge.driver.endpoints.port_publisher import PortPublisher
from cnm_bridge.driver.endpoints.service import EndpointService
from cnm_bridge.driver.ipam.releases import PluginRuns, Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.ipam.unclaimed_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.engine_import import EngineImport, NetworkNameResolver
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.privileges import Privileges
from cnm_bridge.driver.networks.readable_ids import ReadableIds
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.leftovers import LeftoverFinder
from cnm_bridge.driver.recovery.rebuild_endpoint import RebuildEndpoint
from cnm_bridge.driver.recovery.reconciler import Reconciler, Repair
from cnm_bridge.driver.recovery.trusted_engine import TrustedEngine
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import PendingTeardowns, TeardownSlots
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins, Teardown
from cnm_bridge.resources import Resources, make_resources
from cnm_bridge.server.admin.documents import IpamDocuments, Status
from cnm_bridge.server.admin.endpoints import EndpointChecks, EndpointDocuments
from cnm_bridge.server.admin.http import Request
from cnm_bridge.server.admin.metrics import Metrics
from cnm_bridge.server.admin.requests import Actions, admin_requests, settings_request
from cnm_bridge.server.methods import ipam_driver, network_driver
from cnm_bridge.server.rpc import CallsUnderWay, Method, answering
from cnm_bridge.system.kernel import HostPorts
from cnm_bridge.system.log import LogWriter
from cnm_bridge.system.scheduling import KeyedLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The resources, the objects that work in the background, and what the daemon answers.

    `methods` are Docker's calls, `requests` those of the operator at the admin socket. The metrics are given there, and
    at an address of their own.
    """

    resources: Resources
    networks: NetworkService
    teardowns: TeardownQueue
    ipam: IpamService
    releases: Releases
    unfinished: UnfinishedTeardowns
    reconciler: Reconciler
    lease_keeper: LeaseKeeper
    joined: JoinedEndpoints
    calls: CallsUnderWay
    methods: tuple[Method, ...]
    requests: tuple[Request, ...]
    metrics: Metrics

    def answering(self, sock: socket.socket) -> AbstractAsyncContextManager[None]:
        """Answer the calls on a listening socket while the block runs; see `cnm_bridge.server.rpc`."""
        return answering(
            sock,
            self.methods,
            calls=self.calls,
            teardowns=self.teardowns,
            journal=self.resources.journal,
            drain_timeout_s=self.resources.settings.drain_timeout_s,
            on_hidden=self.resources.kernel.distrust_processes,
        )


def assemble(
    settings: Settings, store: Store, *, plugin_descriptors: int | None = None, log_output: LogWriter | None = None
) -> Daemon:
    """Make all objects and connect them.

    `plugin_descriptors` is the soft limit of open descriptors for plugins, None for the daemon's own. The lines that
    `log_output` drops are a metric.
    """
    resources = make_resources(settings, store, plugin_descriptors)
    runtime, kernel, version, locks = resources.runtime, resources.kernel, resources.version, resources.locks
    engine, engine_in_calls, journal = resources.engine, resources.engine_in_calls, resources.journal
    run_dir, boot_id, calls = settings.run_dir, resources.boot_id, CallsUnderWay()

    networks = make_networks(resources)
    planner, directories = networks.planner, networks.lists.directories
    ways_out = WaysOut(store, engine, planner, version, Privileges(store, engine, kernel, version))

    # how links get into sandboxes and out
    sandbox_sync = SandboxSync(store, kernel, locks, version)
    leases = Leases(runtime, kernel)
    attachers = make_attachers(resources, SandboxOwners(kernel, engine_in_calls, version), sandbox_sync, leases)

    # teardowns
    pending, liveness = PendingTeardowns(), Liveness(store, kernel)
    owners, orphaned_plugins = AddressOwners(store, pending), OrphanedPlugins(resources.running_dir)
    teardowns = TeardownQueue(
        store=store,
        teardown=Teardown(
            store=store,
            attachers=attachers,
            owners=owners,
            pending=pending,
            liveness=liveness,
            orphaned_plugins=orphaned_plugins,
        ),
        pending=pending,
        locks=locks,
        slots=TeardownSlots(resources.limits.executions),
        quiet_s=calls.quiet_s,
    )
    dead = DeadEndpoints(store, liveness, teardowns)

    # Docker's IPAM
    plugins = PluginRuns(runtime, kernel, run_dir)
    releases = Releases(store, plugins, teardowns, KeyedLocks())
    ipam = IpamService(store=store, sections=Sections(directories), runtime=runtime, plugins=plugins, releases=releases)
    unclaimed = UnclaimedAddresses(
        store=store,
        engine=engine,
        kernel=kernel,
        releases=releases,
        driver=settings.driver_name,
        grace_s=settings.reconcile_grace_s,
        settled_s=settings.plugin_timeout_s,
    )

    # comparison and repair
    unfinished = UnfinishedTeardowns(
        store=store,
        teardowns=teardowns,
        orphaned_plugins=orphaned_plugins,
        liveness=liveness,
        journal=journal,
        boot_id=boot_id,
        limit_s=settings.recovery_timeout_s,
        boot_limit_s=settings.boot_recovery_timeout_s,
    )
    reconciler = make_reconciler(resources, networks, teardowns, unclaimed, ways_out)
    lease_keeper = LeaseKeeper(store, leases, locks)

    # endpoints
    port_publisher = PortPublisher(store, runtime, HostPorts(), PortClaims())
    unpublished = Unpublished(store, engine_in_calls, kernel)
    joined = JoinedEndpoints(
        store=store,
        port_publisher=port_publisher,
        unpublished=unpublished,
        sandbox_sync=sandbox_sync,
        files=ContainerFiles(store, kernel, version),
        teardowns=teardowns,
        dead=dead,
        locks=locks,
        liveness=liveness,
    )
    endpoints = EndpointService(
        store=store,
        planner=planner,
        attempts=Attempts(store, dead, locks),
        attachers=attachers,
        owners=owners,
        teardowns=teardowns,
        joined=joined,
        ways_out=ways_out,
        locks=locks,
    )

    # what is answered
    methods = (
        *network_driver(networks, endpoints, joined, kernel, version, scope=settings.scope),
        *ipam_driver(ipam),
    )
    readable = ReadableIds(store, engine_in_calls)
    metrics = Metrics(
        store=store,
        teardowns=teardowns,
        reconcile=reconciler,
        unpublished=unpublished,
        releases=releases,
        directories=directories,
        journal=journal,
        state_dir=settings.state_dir,
        log_output=log_output,
    )
    requests = make_requests(resources, networks, reconciler, lease_keeper, joined)
    return Daemon(
        resources=resources,
        networks=networks,
        teardowns=teardowns,
        ipam=ipam,
        releases=releases,
        unfinished=unfinished,
        reconciler=reconciler,
        lease_keeper=lease_keeper,
        joined=joined,
        calls=calls,
        methods=tuple(replace(method, readable=readable) for method in methods),
        requests=(*requests, metrics.request),
        metrics=metrics,
    )


def make_networks(resources: Resources) -> NetworkService:
    """Return the networks, with their lists and the plans of their endpoints."""
    settings, store, locks = resources.settings, resources.store, KeyedLocks[NetworkId]()
    lists = NetworkLists(
        store=store,
        directories=ConfigurationDirectories(settings.cni_conf_dirs),
        runtime=resources.runtime,
        name_resolver=NetworkNameResolver(store, resources.engine, locks, settings.binding_timeout_s),
        engine_import=EngineImport(store, resources.engine_in_calls, locks),
        locks=locks,
    )
    planner = EndpointPlanner(
        store=store,
        lists=lists,
        version=resources.version,
        attach=settings.attach,
        arg_names=settings.cni_arg_names,
        run_dir=settings.run_dir,
        boot_id=resources.boot_id,
    )
    return NetworkService(
        store=store,
        lists=lists,
        planner=planner,
        kernel=resources.kernel,
        engine=resources.engine_in_calls,
        is_global=settings.scope is Scope.GLOBAL,
        locks=locks,
    )


def make_reconciler(
    resources: Resources,
    networks: NetworkService,
    teardowns: TeardownQueue,
    unclaimed: UnclaimedAddresses,
    ways_out: WaysOut,
) -> Reconciler:
    """Return what compares records, engine and kernel, and repairs."""
    settings, store, kernel, locks = resources.settings, resources.store, resources.kernel, resources.locks
    run_dir, boot_id, lists = settings.run_dir, resources.boot_id, networks.lists
    trusted = TrustedEngine(
        store=store,
        engine=resources.engine,
        engine_import=lists.engine_import,
        version=resources.version,
        driver=settings.driver_name,
    )
    return Reconciler(
        engine=trusted,
        repair=Repair(
            store=store,
            engine=trusted,
            liveness=teardowns.teardown.liveness,
            lists=lists,
            leftovers=LeftoverFinder(
                store=store,
                lists=lists,
                kernel=kernel,
                teardowns=teardowns,
                locks=locks,
                run_dir=run_dir,
                boot_id=boot_id,
            ),
            networks=networks,
            teardowns=teardowns,
            rebuild_endpoint=RebuildEndpoint(
                store=store,
                planner=networks.planner,
                engine=resources.engine,
                locks=locks,
                kernel=kernel,
                run_dir=run_dir,
                boot_id=boot_id,
            ),
            grace_s=settings.reconcile_grace_s,
        ),
        unclaimed_addresses=unclaimed,
        ways_out=ways_out,
        interval_s=settings.reconcile_interval_s,
    )


def make_requests(
    resources: Resources,
    networks: NetworkService,
    reconciler: Reconciler,
    lease_keeper: LeaseKeeper,
    joined: JoinedEndpoints,
) -> tuple[Request, ...]:
    """Return what the operator can ask at the admin socket, without the metrics."""
    store, kernel, journal = resources.store, resources.kernel, resources.journal
    teardowns, directories = joined.teardowns, networks.lists.directories
    unclaimed = reconciler.unclaimed_addresses
    addresses = IpamDocuments(store=store, releases=unclaimed.releases, unclaimed=unclaimed, kernel=kernel)
    requests = admin_requests(
        store=store,
        status=Status(
            store=store,
            teardowns=teardowns,
            reconcile=reconciler,
            unpublished=joined.unpublished,
            dhcp=lease_keeper,
            directories=directories,
            ipam=addresses,
            running_dir=resources.running_dir,
        ),
        endpoints=EndpointDocuments(
            store=store,
            kernel=kernel,
            unpublished=joined.unpublished,
            ways_out=reconciler.ways_out,
            teardowns=teardowns,
            journal=journal,
            directories=directories,
        ),
        checks=EndpointChecks(store, resources.runtime, kernel),
        actions=Actions(teardowns=teardowns, reconciler=reconciler, ipam=addresses),
        ipam=addresses,
        journal=journal,
    )
    return (*requests, settings_request(resources.settings))


def make_attachers(resources: Resources, owners: SandboxOwners, sandbox_sync: SandboxSync, leases: Leases) -> Attachers:
    """Return the attacher of each mode; `owners` finds the containers of sandboxes."""
    store, runtime, kernel = resources.store, resources.runtime, resources.kernel
    run_dir = resources.settings.run_dir
    places = PlaceFinder(store, kernel, owners, resources.version)
    move_detacher = MoveDetacher(runtime, kernel)
    move = MoveAttacher(
        store=store, runtime=runtime, kernel=kernel, sandbox_sync=sandbox_sync, detacher=move_detacher, places=places
    )
    in_sandbox = SandboxAttacher(
        store=store,
        runtime=runtime,
        kernel=kernel,
        places=places,
        move=move,
        detacher=SandboxDetacher(
            runtime=runtime, kernel=kernel, places=places, move=move_detacher, leases=leases, run_dir=run_dir
        ),
        leases=leases,
        sandbox_sync=sandbox_sync,
        run_dir=run_dir,
    )
    return {AttachMode.MOVE: move, AttachMode.HYBRID: in_sandbox, AttachMode.DIRECT: in_sandbox}
