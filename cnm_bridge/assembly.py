# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: makes all objects of the daemon, each after those that it depends on; starts none."""

import os
import socket
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
from cnm_bridge.driver.recovery.leftovers import LeftoverSearch, RemoveLeftovers
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
from cnm_bridge.server.admin.documents import IpamDocuments, Status
from cnm_bridge.server.admin.endpoints import EndpointChecks, EndpointDocuments
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
class Daemon:
    """The resources, the objects that work in the background, and what the daemon answers.

    Attributes:
        methods: Docker's calls.
        requests: The operator's requests, at the admin socket.
        metrics: The figures, which are also given at the address for metrics.
    """

    resources: Resources
    networks: NetworkService
    lists: NetworkLists
    engine_import: EngineImport
    name_resolver: NetworkNameResolver
    ways_out: WaysOut
    leases: Leases
    sandbox_sync: SandboxSync
    liveness: Liveness
    teardowns: TeardownQueue
    ipam: IpamService
    releases: Releases
    unclaimed: UnclaimedAddresses
    unfinished: UnfinishedTeardowns
    reconciler: Reconciler
    lease_keeper: LeaseKeeper
    joined: JoinedEndpoints
    port_publisher: PortPublisher
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
    resources = make_resources(settings, store, plugin_descriptors)
    runtime, kernel, version, locks = resources.runtime, resources.kernel, resources.version, resources.locks
    engine, engine_in_calls, journal = resources.engine, resources.engine_in_calls, resources.journal
    run_dir, boot_id, calls = settings.run_dir, resources.boot_id, CallsUnderWay()

    # networks and their lists
    network_locks: KeyedLocks[NetworkId] = KeyedLocks()
    directories = ConfigurationDirectories(settings.cni_conf_dirs)
    name_resolver = NetworkNameResolver(store, engine, network_locks, settings.binding_timeout_s)
    engine_import = EngineImport(store, engine_in_calls, network_locks)
    lists = NetworkLists(
        store=store,
        directories=directories,
        runtime=runtime,
        name_resolver=name_resolver,
        engine_import=engine_import,
        locks=network_locks,
        allow_inline=settings.allow_inline,
    )
    planner = EndpointPlanner(
        store=store,
        lists=lists,
        version=version,
        attach=settings.attach,
        arg_names=settings.cni_arg_names,
        run_dir=run_dir,
        boot_id=boot_id,
    )
    networks = NetworkService(
        store=store,
        lists=lists,
        planner=planner,
        kernel=kernel,
        engine=engine_in_calls,
        is_global=settings.scope is Scope.GLOBAL,
        locks=network_locks,
    )
    ways_out = WaysOut(store, engine, planner, version, Privileges(store, engine, kernel, version))

    # how links get into sandboxes and out
    sandbox_sync = SandboxSync(store, kernel, locks, Announcer(store, kernel), version)
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
    trusted = TrustedEngine(
        store=store, engine=engine, engine_import=engine_import, version=version, driver=settings.driver_name
    )
    reconciler = Reconciler(
        engine=trusted,
        repair=Repair(
            store=store,
            engine=trusted,
            liveness=liveness,
            lists=lists,
            search=LeftoverSearch(store, kernel, run_dir),
            networks=networks,
            teardowns=teardowns,
            rebuild_endpoint=RebuildEndpoint(
                store=store,
                planner=planner,
                engine=engine,
                locks=locks,
                kernel=kernel,
                run_dir=run_dir,
                boot_id=boot_id,
            ),
            remove_leftovers=RemoveLeftovers(
                store=store,
                lists=lists,
                kernel=kernel,
                teardowns=teardowns,
                locks=locks,
                run_dir=run_dir,
                boot_id=boot_id,
            ),
            grace_s=settings.reconcile_grace_s,
        ),
        unclaimed_addresses=unclaimed,
        ways_out=ways_out,
        interval_s=settings.reconcile_interval_s,
    )
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
    addresses = IpamDocuments(store=store, releases=releases, unclaimed=unclaimed, kernel=kernel)
    requests = admin_requests(
        store=store,
        status=Status(
            store=store,
            teardowns=teardowns,
            reconcile=reconciler,
            unpublished=unpublished,
            dhcp=lease_keeper,
            directories=directories,
            ipam=addresses,
            running_dir=resources.running_dir,
        ),
        endpoints=EndpointDocuments(
            store=store,
            kernel=kernel,
            unpublished=unpublished,
            ways_out=ways_out,
            teardowns=teardowns,
            journal=journal,
            directories=directories,
        ),
        checks=EndpointChecks(store, runtime, kernel),
        actions=Actions(teardowns=teardowns, reconciler=reconciler, ipam=addresses),
        ipam=addresses,
        journal=journal,
    )
    return Daemon(
        resources=resources,
        networks=networks,
        lists=lists,
        engine_import=engine_import,
        name_resolver=name_resolver,
        ways_out=ways_out,
        leases=leases,
        sandbox_sync=sandbox_sync,
        liveness=liveness,
        teardowns=teardowns,
        ipam=ipam,
        releases=releases,
        unclaimed=unclaimed,
        unfinished=unfinished,
        reconciler=reconciler,
        lease_keeper=lease_keeper,
        joined=joined,
        port_publisher=port_publisher,
        calls=calls,
        methods=tuple(replace(method, readable=readable) for method in methods),
        requests=(*requests, metrics.request, settings_request(settings)),
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
            observer=journal.on_execution,
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
