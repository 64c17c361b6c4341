# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the daemon: start, serve, stop; and the background work. `assembly.py` makes its objects."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Final, Literal

import structlog

from cni_bridge_state import StateError
from cni_bridge_state.store import Store
from cni_invoker.errors import InvalidParameter
from cnm_bridge import __version__
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.server.admin.http import answering_admin
from cnm_bridge.server.admin.metrics import answering_scrapes
from cnm_bridge.system.log import LogWriter, RateLimit
from cnm_bridge.system.process import (
    keep_memory_small,
    raise_descriptor_limit,
    resume_garbage_collection,
    shorten_thread_turns,
)
from cnm_bridge.system.sockets import Sockets, is_peer_hidden
from cnm_bridge.system.systemd import notifying, take_watchdog_s

log = structlog.get_logger()

_START_S: Final = 60.0
"""What systemd allows the start beyond the wait for teardowns (`EXTEND_TIMEOUT_USEC` in sd_notify(3))."""
_Work = Callable[[], Awaitable[None]]
_FEEDINGS: Final = 3
"""How often the watchdog is fed within its time limit."""
_PAUSE_S: Final = 1.0
"""Shorter than systemd waits for a sign of life: feeding its watchdog is such work, too."""


def run(settings: Settings, sockets: Sockets, output: LogWriter) -> None:
    """Run the daemon until a signal stops it; see `serve`.

    Raises:
        Refused: It cannot start; the text says why.
    """
    keep_memory_small()
    shorten_thread_turns()
    try:
        asyncio.run(serve(settings, sockets, output))
    except (InvalidParameter, StateError) as exc:
        raise Refused(str(exc)) from exc


async def serve(settings: Settings, sockets: Sockets, output: LogWriter) -> None:
    """Answer Docker on the plugin socket until SIGTERM or SIGINT, then complete running calls and teardowns.

    The operator and scrapes of metrics are answered during the clean-up at the start and at the end, too.

    Before the first call is answered, the daemon undoes what the previous run left unfinished, for a limited time,
    because a plugin that hangs must not block all other networks (`UnfinishedTeardowns.wait`).

    Raises:
        StateError: The state directory cannot be used.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    watchdog_s, descriptors = take_watchdog_s(), raise_descriptor_limit()
    with notifying() as notify, closing(await asyncio.to_thread(Store.open, settings.state_dir)) as store:
        resume_garbage_collection()
        _log_obstacles(store)
        daemon = assemble(settings, store, plugin_descriptors=descriptors, log_output=output)
        if is_peer_hidden(settings.docker_host):  # if the engine is not there yet, its first call tells
            daemon.resources.kernel.distrust_processes()  # before anything is undone
        await daemon.joined.port_publisher.load()
        unfinished = await daemon.unfinished.add()
        daemon.releases.add_unfinished()
        resume_garbage_collection()  # again: after a reboot there may be thousands of teardowns
        async with (
            answering_admin(sockets.admin, daemon.requests),
            answering_scrapes(sockets.scrapes, daemon.metrics.give),
            asyncio.TaskGroup() as tasks,
        ):
            works: tuple[tuple[str, _Work], ...] = (
                *_background(daemon),
                ("watchdog", partial(feed_watchdog, notify, watchdog_s)),
            )
            background = [tasks.create_task(supervised(name, work)) for name, work in works]
            if unfinished:
                log.info("daemon.recovering", endpoints=unfinished)
                notify(f"EXTEND_TIMEOUT_USEC={round((daemon.unfinished.wait_s + _START_S) * 1e6)}")
                recovered = tasks.create_task(supervised("recovery", daemon.unfinished.wait, again=False))
                await _wait_for_either(recovered, tasks.create_task(stop.wait()))
            if not stop.is_set():
                async with daemon.answering(sockets.plugin):
                    log.info("daemon.ready", version=__version__, socket=sockets.plugin.getsockname())
                    notify("READY=1")
                    await stop.wait()
                    notify("STOPPING=1")
                    log.info("daemon.stopping")
            for task in background:
                task.cancel()
        await daemon.resources.close()
    log.info("daemon.stopped")


def _log_obstacles(store: Store) -> None:
    """Log damaged records and missing rights."""
    for finding in store.findings:
        log.error("state.damaged", what=finding.what, lost=finding.lost, copy=str(finding.copy))
    if os.geteuid() != 0:
        log.warning(
            "daemon.not_root", consequence="no container can be attached: only root can make network namespaces"
        )


def _background(daemon: Daemon) -> Iterator[tuple[str, _Work]]:
    """Yield the background work, which runs until the daemon stops, with its names."""
    yield "network names", daemon.networks.lists.name_resolver.run
    yield "teardowns", daemon.teardowns.run
    yield "releases", daemon.releases.run
    yield "reconcile", daemon.reconciler.run
    yield "DHCP leases", daemon.lease_keeper.run
    yield "sandboxes", daemon.joined.sandbox_sync.run
    yield "requested ports", daemon.joined.complete_requests


async def _wait_for_either(first: asyncio.Task[None], second: asyncio.Task[Literal[True]]) -> None:
    """Wait for one of two tasks, and cancel the other."""
    both: tuple[asyncio.Task[object], ...] = (first, second)
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in both:
        task.cancel()


async def feed_watchdog(notify: Callable[[str], None], limit_s: float | None) -> None:
    """Tell systemd, until cancelled, that the event loop turns; return at once without a watchdog.

    If the loop stops turning for the time limit, systemd kills the daemon and starts it again.
    """
    while limit_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(limit_s / _FEEDINGS)


async def supervised(name: str, work: Callable[[], Awaitable[None]], *, again: bool = True) -> None:
    """Run background work; after an error begin it `again`, as often as necessary, so that it does not end the daemon.

    `work` runs until it is cancelled or done. What it needs after an error must be kept outside of it.
    """
    errors = RateLimit()
    while True:
        try:
            await work()
        except Exception:  # a bug in one work must not end the others, and with them the daemon
            if count := errors.count():
                log.exception("background.bug", work=name, count=count)
            if not again:
                return
        else:
            return
        await asyncio.sleep(_PAUSE_S)
