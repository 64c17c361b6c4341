# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: makes all objects of the daemon, room by room, each after those it depends on; starts none."""

import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cni_bridge_state import AttachMode, EndpointId, NetworkId
from cni_bridge_state.store import Store
from cni_invoker import DEFAULT_LOCK_DIR, ConfigurationDirectories, Limits, Runtime, installed_plugins
from cni_invoker.execution.running_plugins import read_boot_id
from cnm_bridge.core.lists.dhcp import LEASE_LIMIT_S
from cnm_bridge.core.planning.ports import PortClaims
from cnm_bridge.core.settings import Scope, Settings
from cnm_bridge.driver.attach.announcer import Announcer
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.detachers import MoveDetacher, SandboxDetacher
from cnm_bridge.driver.attach.leases import DhcpDaemons, Leases
from cnm_bridge.driver.attach.move_attacher import MoveAttacher
from cnm_bridge.driver.attach.place_finder import PlaceFinder, SandboxOwners
from cnm_bridge.driver.attach.sandbox_attacher import SandboxAttacher
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints, Unpublished
from cnm_bridge.driver.endpoints.attempts import Attempts
from cnm_bridge.driver.endpoints.container_files import ContainerFiles
from cnm_bridge.driver.endpoints.port_publisher import PortPublisher
from cnm_bridge.driver.endpoints.service import EndpointService
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.ipam.unclaimed_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.engine_import import EngineImport, NetworkNameResolver
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.privileges import Privileges
from cnm_bridge.driver.networks.readable_ids import ReadableIds
from cnm_bridge.driver.networks.service import GlobalScope, NetworkService, UnusedBridges
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.leftovers import LeftoverSearch, RemoveLeftovers
from cnm_bridge.driver.recovery.rebuild_endpoint import LostRecords, RebuildEndpoint
from cnm_bridge.driver.recovery.reconciler import Comparison, Reconciler, Repair
from cnm_bridge.driver.recovery.trusted_engine import TrustedEngine
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import PendingTeardowns, TeardownSlots
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins, Teardown
from cnm_bridge.server.admin.checks import EndpointChecks
from cnm_bridge.server.admin.documents import IpamDocuments, Status
from cnm_bridge.server.admin.endpoints import EndpointDocuments
from cnm_bridge.server.admin.http import Request, answering_admin
from cnm_bridge.server.admin.metrics import Metrics, answering_scrapes
from cnm_bridge.server.admin.requests import Actions, admin_requests, settings_request
from cnm_bridge.server.methods import ipam_driver, network_driver
from cnm_bridge.server.rpc import CallsUnderWay, Method, answering
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.kernel import HostPorts, Kernel
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.log import LogWriter
from cnm_bridge.system.process import find_plugin_oom_score
from cnm_bridge.system.scheduling import KeyedLocks

_RUNNING: Final = "plugins"
"""The subdirectory of `run_dir` that records the running plugins."""

_RESULT_BYTES: Final = 256 << 10
_RESULT_ENTRIES: Final = 512
"""What takes the event loop some 20 ms at most: 2000 routes blocked it for a third of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The settings, and access to records, plugins, kernel and engine.

    Attributes:
        limits: The limits of the plugins.
        running_dir: The directory that records the running plugins.
        boot_id: The kernel's boot ID.
        engine: The engine, for work in the background.
        engine_in_calls: The engine with a shorter time limit, for calls that Docker waits for.
        version: The engine's version.
        locks: The locks of endpoints.
    """

    settings: Settings
    store: Store
    runtime: Runtime
    limits: Limits
    running_dir: Path
    kernel: Kernel
    boot_id: str
    engine: Engine
    engine_in_calls: Engine
    version: KnownVersion
    journal: Journal
    locks: KeyedLocks[EndpointId]

    async def close(self) -> None:
        """Close the connections to the engine."""
        await self.engine.close()
        await self.engine_in_calls.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Networks:
    service: NetworkService
    planner: EndpointPlanner
    ways_out: WaysOut
    lists: NetworkLists
    directories: ConfigurationDirectories
    name_resolver: NetworkNameResolver
    engine_import: EngineImport


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attach:
    attachers: Attachers
    sandbox_sync: SandboxSync
    dhcp_daemons: DhcpDaemons
    leases: Leases


@dataclass(frozen=True, slots=True, kw_only=True)
class _Teardown:
    queue: TeardownQueue
    owners: AddressOwners
    liveness: Liveness
    orphaned_plugins: OrphanedPlugins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ipam:
    service: IpamService
    releases: Releases
    unclaimed: UnclaimedAddresses


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recovery:
    unfinished: UnfinishedTeardowns
    reconciler: Reconciler
    lease_keeper: LeaseKeeper
    dead: DeadEndpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoints:
    service: EndpointService
    joined: JoinedEndpoints
    port_publisher: PortPublisher
    unpublished: Unpublished


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The resources, the rooms of the driver, and what the daemon answers.

    Attributes:
        methods: Docker's calls.
        requests: The operator's requests, at the admin socket.
        metrics: The figures, which are also given at the address for metrics.
    """

    resources: Resources
    networks: _Networks
    attach: _Attach
    teardown: _Teardown
    ipam: _Ipam
    recovery: _Recovery
    endpoints: _Endpoints
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
            teardowns=self.teardown.queue,
            journal=self.resources.journal,
            drain_timeout_s=self.resources.settings.drain_timeout_s,
            on_hidden=self.resources.kernel.distrust_processes,
        )

    def answering_admin(self, sock: socket.socket | None) -> AbstractAsyncContextManager[None]:
        """Answer the operator's requests on the admin socket, if there is one, while the block runs."""
        return answering_admin(sock, self.requests)

    def answering_scrapes(self, sock: socket.socket | None) -> AbstractAsyncContextManager[None]:
        """Answer `GET /metrics` on a TCP socket while the block runs; nothing without one."""
        return answering_scrapes(sock, self.metrics.give)


def assemble(
    settings: Settings, store: Store, *, plugin_descriptors: int | None = None, log_output: LogWriter | None = None
) -> Daemon:
    """Make all objects and connect them.

    Args:
        settings: The settings.
        store: The records.
        plugin_descriptors: The soft limit of open descriptors for plugins; None for the daemon's own.
        log_output: What writes the log; its dropped lines are a metric.
    """
    calls = CallsUnderWay()
    resources = make_resources(settings, store, plugin_descriptors)
    networks = _make_networks(resources)
    attach = _make_attach(resources, SandboxOwners(resources.kernel, resources.engine_in_calls, resources.version))
    teardown = _make_teardown(resources, attach, calls.quiet_s)
    ipam = _make_ipam(resources, networks, teardown)
    recovery = _make_recovery(resources, networks, attach, teardown, ipam)
    endpoints = _make_endpoints(resources, networks, attach, teardown, recovery)
    metrics = Metrics(
        store=store,
        teardowns=teardown.queue,
        reconcile=recovery.reconciler,
        unpublished=endpoints.unpublished,
        releases=ipam.releases,
        directories=networks.directories,
        journal=resources.journal,
        state_dir=settings.state_dir,
        log_output=log_output,
    )
    return Daemon(
        resources=resources,
        networks=networks,
        attach=attach,
        teardown=teardown,
        ipam=ipam,
        recovery=recovery,
        endpoints=endpoints,
        calls=calls,
        methods=_make_methods(resources, networks, endpoints, ipam),
        requests=(
            *_make_requests(
                resources, networks=networks, teardown=teardown, recovery=recovery, endpoints=endpoints, ipam=ipam
            ),
            metrics.request,
            settings_request(settings),
        ),
        metrics=metrics,
    )


def make_resources(settings: Settings, store: Store, plugin_descriptors: int | None) -> Resources:
    """Return the surroundings; the arguments are those of `assemble`."""
    limits = Limits(
        add_s=settings.plugin_timeout_s,
        dhcp_s=LEASE_LIMIT_S,
        delete_s=settings.plugin_timeout_s,
        stdout_bytes=_RESULT_BYTES,
        result_entries=_RESULT_ENTRIES,
        stderr_lines=0,  # it may contain credentials, and errors reach the log and Docker's users
        descriptors=plugin_descriptors,
        oom_score=find_plugin_oom_score(),
    )
    running_dir = settings.run_dir / _RUNNING
    journal = Journal()
    store.when_phase_changed(journal.on_phase)
    return Resources(
        settings=settings,
        store=store,
        runtime=Runtime(
            settings.cni_bin_dirs,
            limits,
            lock_dir=DEFAULT_LOCK_DIR,
            running_dir=running_dir,
            environment=dict(os.environ),  # reading it takes long, and it is read for every execution
            observer=journal,
            in_process=installed_plugins(),
        ),
        limits=limits,
        running_dir=running_dir,
        kernel=Kernel(reply_limit_s=settings.netlink_timeout_s),
        boot_id=read_boot_id(),
        engine=Engine(settings.docker_host, settings.engine_background_timeout_s, stays_open=True),
        engine_in_calls=Engine(settings.docker_host, settings.engine_timeout_s, stays_open=True),
        version=KnownVersion(store),
        journal=journal,
        locks=KeyedLocks(),
    )


def make_attachers(resources: Resources, owners: SandboxOwners) -> Attachers:
    """Return the attacher of each mode; `owners` finds the containers of sandboxes."""
    return _make_attach(resources, owners).attachers


def _make_networks(resources: Resources) -> _Networks:
    settings, store = resources.settings, resources.store
    locks: KeyedLocks[NetworkId] = KeyedLocks()
    directories = ConfigurationDirectories(settings.cni_conf_dirs)
    name_resolver = NetworkNameResolver(store, resources.engine, locks, settings.binding_timeout_s)
    engine_import = EngineImport(store, resources.engine_in_calls, locks)
    lists = NetworkLists(
        store=store,
        directories=directories,
        runtime=resources.runtime,
        name_resolver=name_resolver,
        engine_import=engine_import,
        locks=locks,
        allow_inline=settings.allow_inline,
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
    return _Networks(
        service=NetworkService(
            store=store,
            lists=lists,
            planner=planner,
            unused_bridges=UnusedBridges(resources.kernel),
            global_scope=GlobalScope(resources.engine_in_calls) if settings.scope is Scope.GLOBAL else None,
            locks=locks,
        ),
        planner=planner,
        ways_out=WaysOut(
            store,
            resources.engine,
            planner,
            resources.version,
            Privileges(store, resources.engine, resources.kernel, resources.version),
        ),
        lists=lists,
        directories=directories,
        name_resolver=name_resolver,
        engine_import=engine_import,
    )


def _make_attach(resources: Resources, owners: SandboxOwners) -> _Attach:
    store, runtime, kernel = resources.store, resources.runtime, resources.kernel
    run_dir = resources.settings.run_dir
    sandbox_sync = SandboxSync(store, kernel, resources.locks, Announcer(store, kernel), resources.version)
    move_detacher = MoveDetacher(runtime, kernel)
    daemons = DhcpDaemons(kernel)
    leases = Leases(runtime, daemons)
    places = PlaceFinder(store, kernel, owners, resources.version)
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
    return _Attach(
        attachers={AttachMode.MOVE: move, AttachMode.HYBRID: in_sandbox, AttachMode.DIRECT: in_sandbox},
        sandbox_sync=sandbox_sync,
        dhcp_daemons=daemons,
        leases=leases,
    )


def _make_teardown(resources: Resources, attach: _Attach, quiet_s: Callable[[EndpointId], float]) -> _Teardown:
    """Return the objects of the room; `quiet_s` returns for how long Docker has called about no other endpoint."""
    store, kernel = resources.store, resources.kernel
    pending = PendingTeardowns()
    owners = AddressOwners(store, pending)
    liveness = Liveness(store, kernel)
    orphaned_plugins = OrphanedPlugins(resources.running_dir)
    queue = TeardownQueue(
        store=store,
        teardown=Teardown(
            store=store,
            attachers=attach.attachers,
            owners=owners,
            pending=pending,
            liveness=liveness,
            orphaned_plugins=orphaned_plugins,
        ),
        pending=pending,
        locks=resources.locks,
        slots=TeardownSlots(resources.limits.executions),
        quiet_s=quiet_s,
    )
    return _Teardown(
        queue=queue,
        owners=owners,
        liveness=liveness,
        orphaned_plugins=orphaned_plugins,
    )


def _make_ipam(resources: Resources, networks: _Networks, teardown: _Teardown) -> _Ipam:
    settings, store = resources.settings, resources.store
    plugins = PluginRuns(resources.runtime, resources.kernel, settings.run_dir)
    releases = Releases(store, plugins, teardown.queue, KeyedLocks())
    service = IpamService(
        store=store,
        sections=Sections(networks.directories),
        runtime=resources.runtime,
        plugins=plugins,
        releases=releases,
    )
    unclaimed = UnclaimedAddresses(
        store=store,
        engine=resources.engine,
        kernel=resources.kernel,
        releases=releases,
        driver=settings.driver_name,
        grace_s=settings.reconcile_grace_s,
        settled_s=settings.plugin_timeout_s,
    )
    return _Ipam(service=service, releases=releases, unclaimed=unclaimed)


def _make_recovery(
    resources: Resources, networks: _Networks, attach: _Attach, teardown: _Teardown, ipam: _Ipam
) -> _Recovery:
    settings, store, kernel = resources.settings, resources.store, resources.kernel
    search = LeftoverSearch(store, kernel, settings.run_dir)
    lost_records = LostRecords(kernel=kernel, run_dir=settings.run_dir, boot_id=resources.boot_id)
    rebuild_endpoint = RebuildEndpoint(
        store=store,
        planner=networks.planner,
        engine=resources.engine,
        locks=resources.locks,
        lost_records=lost_records,
    )
    remove_leftovers = RemoveLeftovers(
        store=store,
        lists=networks.lists,
        kernel=kernel,
        teardowns=teardown.queue,
        locks=resources.locks,
        run_dir=settings.run_dir,
        lost_records=lost_records,
    )
    engine = TrustedEngine(
        store=store,
        engine=resources.engine,
        engine_import=networks.engine_import,
        version=resources.version,
        driver=settings.driver_name,
    )
    return _Recovery(
        unfinished=UnfinishedTeardowns(
            store=store,
            teardowns=teardown.queue,
            orphaned_plugins=teardown.orphaned_plugins,
            liveness=teardown.liveness,
            journal=resources.journal,
            boot_id=resources.boot_id,
            limit_s=settings.recovery_timeout_s,
            boot_limit_s=settings.boot_recovery_timeout_s,
        ),
        reconciler=Reconciler(
            engine=engine,
            repair=Repair(
                comparison=Comparison(store, engine, teardown.liveness, networks.lists, search),
                liveness=teardown.liveness,
                networks=networks.service,
                teardowns=teardown.queue,
                rebuild_endpoint=rebuild_endpoint,
                remove_leftovers=remove_leftovers,
                grace_s=settings.reconcile_grace_s,
            ),
            unclaimed_addresses=ipam.unclaimed,
            ways_out=networks.ways_out,
            interval_s=settings.reconcile_interval_s,
        ),
        lease_keeper=LeaseKeeper(store, attach.dhcp_daemons, attach.leases, resources.locks),
        dead=DeadEndpoints(store, teardown.liveness, teardown.queue),
    )


def _make_endpoints(
    resources: Resources, networks: _Networks, attach: _Attach, teardown: _Teardown, recovery: _Recovery
) -> _Endpoints:
    store, kernel, locks = resources.store, resources.kernel, resources.locks
    port_publisher = PortPublisher(store, resources.runtime, HostPorts(), PortClaims())
    unpublished = Unpublished(store, resources.engine_in_calls, kernel)
    joined = JoinedEndpoints(
        store=store,
        port_publisher=port_publisher,
        unpublished=unpublished,
        sandbox_sync=attach.sandbox_sync,
        files=ContainerFiles(store, kernel, resources.version),
        teardowns=teardown.queue,
        dead=recovery.dead,
        locks=locks,
        liveness=teardown.liveness,
    )
    service = EndpointService(
        store=store,
        planner=networks.planner,
        attempts=Attempts(store, recovery.dead, locks),
        attachers=attach.attachers,
        owners=teardown.owners,
        teardowns=teardown.queue,
        joined=joined,
        ways_out=networks.ways_out,
        locks=locks,
    )
    return _Endpoints(
        service=service,
        joined=joined,
        port_publisher=port_publisher,
        unpublished=unpublished,
    )


def _make_methods(resources: Resources, networks: _Networks, endpoints: _Endpoints, ipam: _Ipam) -> tuple[Method, ...]:
    scope = resources.settings.scope
    methods = (
        *network_driver(
            networks.service,
            endpoints.service,
            endpoints.joined,
            resources.kernel,
            resources.version,
            scope=scope,
        ),
        *ipam_driver(ipam.service),
    )
    readable = ReadableIds(resources.store, resources.engine_in_calls)
    return tuple(replace(method, readable=readable) for method in methods)


def _make_requests(
    resources: Resources,
    *,
    networks: _Networks,
    teardown: _Teardown,
    recovery: _Recovery,
    endpoints: _Endpoints,
    ipam: _Ipam,
) -> tuple[Request, ...]:
    store, kernel, journal = resources.store, resources.kernel, resources.journal
    addresses = IpamDocuments(store=store, releases=ipam.releases, unclaimed=ipam.unclaimed, kernel=kernel)
    return admin_requests(
        store=store,
        status=Status(
            store=store,
            teardowns=teardown.queue,
            reconcile=recovery.reconciler,
            unpublished=endpoints.unpublished,
            dhcp=recovery.lease_keeper,
            directories=networks.directories,
            ipam=addresses,
            running_dir=resources.running_dir,
        ),
        endpoints=EndpointDocuments(
            store=store,
            kernel=kernel,
            unpublished=endpoints.unpublished,
            ways_out=networks.ways_out,
            teardowns=teardown.queue,
            journal=journal,
            directories=networks.directories,
        ),
        checks=EndpointChecks(store, resources.runtime, kernel),
        actions=Actions(teardowns=teardown.queue, reconciler=recovery.reconciler, ipam=addresses),
        ipam=addresses,
        journal=journal,
    )
