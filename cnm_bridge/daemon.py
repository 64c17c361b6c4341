# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The composition root: settings → objects → socket → until told to stop."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from cni_invoker import ConfigurationDirectories, Limits, Runtime
from cnm_bridge import __version__
from cnm_bridge.api import Method, listening, make_app, network_driver
from cnm_bridge.engine import Engine
from cnm_bridge.kernel import Kernel
from cnm_bridge.lifecycle import Binder, Endpoints, KeyedLocks, Networks, PluginLog, TearDown
from cnm_bridge.settings import Settings
from cnm_bridge.systemd import take_notify, take_sockets
from state import NetworkId, Store

__all__ = ["Daemon", "assemble", "serve"]

log = structlog.get_logger()

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


async def serve(settings: Settings) -> None:
    """Answer Docker until SIGTERM or SIGINT, then let the calls under way end.

    What an earlier life left half done is undone before the socket opens.

    Raises:
        StateError: The state directory cannot be used.
        Refused, OSError: The socket cannot be had.
    """
    stop = _stop_signal()
    notify = take_notify()
    store = Store.open(settings.state_dir)
    try:
        daemon = assemble(settings, store)
        await daemon.endpoints.recover()
        async with asyncio.TaskGroup() as tasks:
            binding = tasks.create_task(daemon.binder.run(), name="learn the names of networks")
            with _plugin_socket(settings.socket) as sock:
                async with _answering(make_app(daemon.methods), sock, settings.drain_timeout_s):
                    log.info("daemon.ready", version=__version__, socket=sock.getsockname())
                    notify("READY=1")
                    await stop.wait()
                    notify("STOPPING=1")
                    log.info("daemon.stopping")
            binding.cancel()
    finally:
        store.close()
    log.info("daemon.stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The objects that `serve` runs.

    Attributes:
        methods: The calls it answers.
        binder: Learns names in the background.
        endpoints: Recovers what was left half done.
    """

    methods: tuple[Method, ...]
    binder: Binder
    endpoints: Endpoints


def assemble(settings: Settings, store: Store) -> Daemon:
    """Make every object once and hand it to those that need it; nothing is done yet."""
    runtime = Runtime(
        settings.cni_bin_dirs,
        Limits(add_s=settings.plugin_timeout_s, delete_s=settings.plugin_timeout_s),
        observer=PluginLog(),
    )
    kernel = Kernel(reply_limit_s=settings.netlink_timeout_s)
    network_locks: KeyedLocks[NetworkId] = KeyedLocks()
    engine = Engine(settings.docker_host, settings.engine_timeout_s)
    binder = Binder(store, engine, network_locks, settings.binding_timeout_s)
    directories = ConfigurationDirectories(settings.cni_conf_dirs)
    networks = Networks(store, directories, runtime, binder, network_locks)
    endpoints = Endpoints(
        store,
        networks,
        runtime,
        kernel,
        TearDown(store, runtime, kernel),
        run_dir=settings.run_dir,
        boot_id=_BOOT_ID.read_text("ascii").strip(),
    )
    return Daemon(methods=network_driver(networks, endpoints), binder=binder, endpoints=endpoints)


def _stop_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@contextmanager
def _plugin_socket(path: Path) -> Iterator[socket.socket]:
    """Yield the socket that systemd opened for us, else one of our own."""
    given = take_sockets()
    if given:
        yield given[0]
    else:
        with listening(path) as sock:
            yield sock


@asynccontextmanager
async def _answering(app: web.Application, sock: socket.socket, drain_timeout_s: float) -> AsyncIterator[None]:
    """Serve `app` on `sock`; in the end take no new calls and let those under way end.

    A call that is not done after `drain_timeout_s` is cancelled; its endpoint is undone at the next start.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=drain_timeout_s, handler_cancellation=False)
    await runner.setup()
    try:
        await web.SockSite(runner, sock).start()
        yield
    finally:
        await runner.cleanup()
