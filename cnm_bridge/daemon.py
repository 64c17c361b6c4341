# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: settings → objects → socket → until told to stop."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import structlog

from cni_invoker import DEFAULT_LOCK_DIR, ConfigurationDirectories, FileCache, InvalidParameter, Limits, Runtime
from cnm_bridge import __version__
from cnm_bridge.api import CallsUnderWay, Connections, Method, network_driver, status_method
from cnm_bridge.attach.move import MoveAttacher
from cnm_bridge.attach.move_detach import MoveDetacher
from cnm_bridge.attach.protocol import Attachers
from cnm_bridge.attach.sandbox_sync import SandboxSync
from cnm_bridge.endpoints.caller import CallerLookup
from cnm_bridge.endpoints.creation import EndpointCreation
from cnm_bridge.endpoints.external_connectivity import ExternalConnectivity
from cnm_bridge.endpoints.port_publisher import PortPublisher
from cnm_bridge.endpoints.service import EndpointService
from cnm_bridge.endpoints.unpublishable_ports import Unpublished
from cnm_bridge.engine import Engine
from cnm_bridge.errors import Refused
from cnm_bridge.kernel import HostPorts, Kernel
from cnm_bridge.log import configure_logging
from cnm_bridge.networks.engine_import import EngineImport
from cnm_bridge.networks.name_resolver import NetworkNameResolver
from cnm_bridge.networks.service import NetworkService
from cnm_bridge.planning.port_claims import PortClaims
from cnm_bridge.plugin_log import PluginLog
from cnm_bridge.process_limits import keep_memory_small, raise_descriptor_limit, settle_memory
from cnm_bridge.recovery.adopt import AdoptEndpoint
from cnm_bridge.recovery.inventory_check import InventoryCheck
from cnm_bridge.recovery.leftovers import RemoveLeftovers
from cnm_bridge.recovery.orphans import OrphanAudit
from cnm_bridge.recovery.plugin_gc import PluginGc
from cnm_bridge.recovery.reconciler import Reconciler
from cnm_bridge.recovery.store_attachments import EndpointCache
from cnm_bridge.reloading import Reloading, SettingsSource
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.server import answering
from cnm_bridge.settings import Settings
from cnm_bridge.status_report import Status
from cnm_bridge.systemd import take_notify
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.contention import ContentionResolver
from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.liveness import Liveness
from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.teardown.slots import TeardownSlots
from cnm_bridge.teardown.teardown import Teardown
from spec import load_explanation
from state import AttachMode, EndpointId, NetworkId, StateError, Store

__all__ = ["Daemon", "assemble", "run", "serve"]

log = structlog.get_logger()

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_RUNNING: Final = "plugins"
"""Below `run_dir`: which plugins run."""


def run(settings: Settings, sock: socket.socket, source: SettingsSource) -> None:
    """Run the daemon until a signal stops it; see `serve`.

    Raises:
        Refused: It cannot start; the text says why.
    """
    keep_memory_small()
    try:
        asyncio.run(serve(settings, sock, source))
    except (InvalidParameter, StateError) as exc:
        raise Refused(str(exc)) from exc


async def serve(settings: Settings, sock: socket.socket, source: SettingsSource) -> None:
    """Answer Docker on a listening socket until SIGTERM or SIGINT, then let what is under way end.

    SIGHUP reads the settings from their source again; see `cnm_bridge.reloading`.

    What the previous run left half done is undone before the first call is answered, as far as that completes within
    `recovery_timeout_s`; a plugin that hangs must not keep all other networks down.

    Raises:
        StateError: The state directory cannot be used.
    """
    stop, reload = _signalled(signal.SIGTERM, signal.SIGINT), _signalled(signal.SIGHUP)
    notify = take_notify()
    descriptors = raise_descriptor_limit()
    store = await asyncio.to_thread(Store.open, settings.state_dir)
    settle_memory()
    try:
        for finding in store.findings:
            log.error(
                "state.damaged", what=finding.what, lost=finding.lost, outdated=finding.outdated, copy=str(finding.copy)
            )
        if store.not_migrated is not None:
            consequence = "no network and no container can be made until it can be written; all that is stored is known"
            log.error("state.not_migrated", error=store.not_migrated, consequence=consequence)
        daemon = assemble(settings, store, plugin_descriptors=descriptors)
        reloading = Reloading(settings, source, reload, _appliers(daemon.directories))
        await daemon.port_publisher.load()
        if os.geteuid() != 0:
            log.warning(
                "daemon.not_root", consequence="no container can be attached: only root can make network namespaces"
            )
        unfinished = await daemon.teardowns.add_unfinished() + await daemon.reconcile.add_dead()
        settle_memory()  # after a reboot each of thousands of teardowns has objects of its own too
        async with asyncio.TaskGroup() as tasks:
            runs = (
                daemon.name_resolver.run(),
                daemon.teardowns.run(),
                daemon.reconcile.run(),
                daemon.sandbox_sync.run(),
            )
            background = [tasks.create_task(run) for run in (*runs, reloading.run())]
            if settings.cni_gc:
                collecting = daemon.plugin_gc.run(
                    daemon.networks.bound, daemon.inventory_check.find_gap, every_s=settings.cni_gc_every_s
                )
                background.append(tasks.create_task(collecting))
            if unfinished:
                log.info("daemon.recovering", endpoints=unfinished)
                recovered = tasks.create_task(daemon.teardowns.wait_tried())
                await _either(recovered, tasks.create_task(stop.wait()), settings.recovery_timeout_s)
            if not stop.is_set():
                async with daemon.answering(sock, settings.drain_timeout_s):
                    log.info("daemon.ready", version=__version__, socket=sock.getsockname())
                    notify("READY=1")
                    with suppress(OSError, ImportError):  # it only makes error texts better, and is tried again then
                        await asyncio.to_thread(load_explanation)
                    await stop.wait()
                    notify("STOPPING=1")
                    log.info("daemon.stopping")
            for task in background:
                task.cancel()
    finally:
        store.close()
    log.info("daemon.stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The objects that `serve` runs.

    Attributes:
        methods: The calls it answers.
        connections: Those to the plugin socket.
        calls: Those of Docker's under way.
        name_resolver: Learns names in the background.
        teardowns: Tears down, in the background.
        reconcile: Makes records, engine and kernel agree, in the background.
        directories: Where configurations are.
        networks: Knows which lists are in use.
        plugin_gc: Has plugins clean up, if that is wanted.
        inventory_check: Knows whether they may.
        sandbox_sync: Syncs sandboxes in the background where no call follows.
        port_publisher: Must load before the first call is answered.
    """

    methods: tuple[Method, ...]
    connections: Connections
    calls: CallsUnderWay
    name_resolver: NetworkNameResolver
    teardowns: TeardownQueue
    reconcile: Reconciler
    directories: ConfigurationDirectories
    networks: NetworkService
    plugin_gc: PluginGc
    inventory_check: InventoryCheck
    sandbox_sync: SandboxSync
    port_publisher: PortPublisher

    def answering(self, sock: socket.socket, drain_timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Answer the calls on a listening socket for as long as the block runs; see `cnm_bridge.server`."""
        return answering(
            sock,
            self.methods,
            calls=self.calls,
            connections=self.connections,
            teardowns=self.teardowns,
            drain_timeout_s=drain_timeout_s,
        )


def assemble(settings: Settings, store: Store, *, plugin_descriptors: int | None = None) -> Daemon:
    """Make every object once and hand it to those that need it; nothing is done yet.

    Args:
        settings: What the operator wants.
        store: The records.
        plugin_descriptors: How many descriptors a plugin may have open unless it asks for more; None: as many as the
            daemon itself.
    """
    limits = Limits(add_s=settings.plugin_timeout_s, delete_s=settings.plugin_timeout_s, descriptors=plugin_descriptors)
    running_dir = settings.run_dir / _RUNNING
    runtime = Runtime(
        settings.cni_bin_dirs, limits, observer=PluginLog(), lock_dir=DEFAULT_LOCK_DIR, running_dir=running_dir
    )
    kernel = Kernel(reply_limit_s=settings.netlink_timeout_s)
    network_locks: KeyedLocks[NetworkId] = KeyedLocks()
    asked_by_calls = Engine(settings.docker_host, settings.engine_timeout_s)
    engine = Engine(settings.docker_host, settings.engine_background_timeout_s)
    name_resolver = NetworkNameResolver(store, engine, network_locks, settings.binding_timeout_s)
    directories = ConfigurationDirectories(settings.cni_conf_dirs)
    lost = EngineImport(store, asked_by_calls, network_locks)
    networks = NetworkService(
        store=store,
        directories=directories,
        runtime=runtime,
        name_resolver=name_resolver,
        lost=lost,
        locks=network_locks,
    )
    owners = AddressOwners(store)
    places = TeardownSlots(limits.executions)
    endpoint_locks: KeyedLocks[EndpointId] = KeyedLocks()
    sandbox_sync = SandboxSync(store, kernel, endpoint_locks)
    attachers: Attachers = {
        AttachMode.MOVE: MoveAttacher(runtime, kernel, sandbox_sync, MoveDetacher(runtime, kernel)),
    }
    liveness = Liveness(attachers)
    boot_id = _BOOT_ID.read_text("ascii").strip()
    in_use = InUseCheck(kernel, settings.run_dir)
    calls = CallsUnderWay()
    teardowns = TeardownQueue(
        store=store,
        teardown=Teardown(store, attachers, owners, places),
        in_use=in_use,
        locks=endpoint_locks,
        owners=owners,
        places=places,
        boot_id=boot_id,
        orphaned_plugins=OrphanedPlugins(running_dir),
        quiet_s=calls.quiet_s,
    )
    adopt = AdoptEndpoint(
        store=store,
        networks=networks,
        lost=lost,
        locks=endpoint_locks,
        run_dir=settings.run_dir,
        boot_id=boot_id,
    )
    audit = OrphanAudit(store, kernel, settings.run_dir)
    reconcile = Reconciler(
        store=store,
        engine=engine,
        liveness=liveness,
        in_use=in_use,
        networks=networks,
        teardowns=teardowns,
        lost=lost,
        adopt=adopt,
        audit=audit,
        remove=RemoveLeftovers(
            store=store,
            networks=networks,
            kernel=kernel,
            teardowns=teardowns,
            locks=endpoint_locks,
            run_dir=settings.run_dir,
            boot_id=boot_id,
        ),
        driver=settings.socket.stem,
        interval_s=settings.reconcile_interval_s,
        grace_s=settings.reconcile_grace_s,
    )
    contention = ContentionResolver(store, liveness, in_use, teardowns)
    port_publisher = PortPublisher(store, runtime, HostPorts(), PortClaims())
    endpoints = EndpointService(
        store=store,
        creation=EndpointCreation(
            store=store,
            networks=networks,
            attachers=attachers,
            teardowns=teardowns,
            owners=owners,
            contention=contention,
            run_dir=settings.run_dir,
            boot_id=boot_id,
        ),
        attachers=attachers,
        sandbox_sync=sandbox_sync,
        teardowns=teardowns,
        adopt=adopt,
        port_publisher=port_publisher,
        engine_process=CallerLookup(kernel),
        locks=endpoint_locks,
    )
    unpublished = Unpublished(store, asked_by_calls)
    outside = ExternalConnectivity(
        store=store,
        port_publisher=port_publisher,
        unpublished=unpublished,
        sandbox_sync=sandbox_sync,
        contention=contention,
        locks=endpoint_locks,
    )
    status = Status(store, teardowns, reconcile, audit, unpublished)
    for forget in (in_use.forget, sandbox_sync.forget, unpublished.forget):
        store.when_removed(forget)
    return Daemon(
        methods=(*network_driver(networks, endpoints, outside), status_method(status)),
        connections=Connections(on_hidden=kernel.distrust_processes),
        calls=calls,
        name_resolver=name_resolver,
        teardowns=teardowns,
        reconcile=reconcile,
        directories=directories,
        networks=networks,
        plugin_gc=PluginGc(runtime, EndpointCache(store), [FileCache()]),
        inventory_check=InventoryCheck(
            store=store, engine=engine, kernel=kernel, driver=settings.socket.stem, run_dir=settings.run_dir
        ),
        sandbox_sync=sandbox_sync,
        port_publisher=port_publisher,
    )


def _signalled(*numbers: signal.Signals) -> asyncio.Event:
    """Return an event that each of the signals sets."""
    event = asyncio.Event()
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    return event


def _appliers(directories: ConfigurationDirectories) -> Mapping[str, Callable[[Settings], None]]:
    """Return what uses new settings, for those that can change while the daemon runs."""

    def log_anew(changed: Settings) -> None:
        configure_logging(changed.log_level, changed.log_format)

    return {
        "cni_conf_dirs": lambda changed: directories.look_in(changed.cni_conf_dirs),
        "log_level": log_anew,
        "log_format": log_anew,
    }


async def _either(first: asyncio.Task[None], second: asyncio.Task[Literal[True]], limit_s: float) -> None:
    """Wait for one of two tasks, or for the time limit, and cancel what has not ended."""
    both: tuple[asyncio.Task[object], ...] = (first, second)
    await asyncio.wait(both, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    for task in both:
        task.cancel()
