# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Serves the plugin socket, and stops without losing calls.

dockerd repeats a lost call with an empty body, which is refused, and the container does not start. So every accepted
connection is answered. Other connections stay in the socket's queue; if systemd owns the socket, the next daemon
accepts them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog
from aiohttp import web

from cnm_bridge.api import CallsUnderWay, Method, make_app
from cnm_bridge.journal import Journal
from cnm_bridge.process.network_sockets import Listener
from cnm_bridge.process.sockets import BACKLOG
from cnm_bridge.serving import PendingConnections
from cnm_bridge.teardown.queue import TeardownQueue

__all__ = ["answering"]

log = structlog.get_logger()

_CUT_OFF_S: Final = 0.1
"""Time limit for closing connections without a running call, or with one that was cancelled."""

_ARRIVAL_S: Final = 1.0
"""Time limit for the requests of open connections at the end; dockerd sends its request when it connects."""

_TURNS: Final = 2
"""Turns of the event loop: an accepted socket needs one to become a transport and one to reach `PendingConnections`."""

_ACCEPT_AT_ONCE: Final = 64
"""Connections accepted per turn of the event loop, so that a flood does not delay requests that have arrived."""


@asynccontextmanager
async def answering(
    listeners: Sequence[Listener],
    methods: Iterable[Method],
    *,
    calls: CallsUnderWay,
    connections: PendingConnections,
    teardowns: TeardownQueue,
    journal: Journal,
    drain_timeout_s: float,
) -> AsyncIterator[None]:
    """Answer calls on listening sockets; at the end accept no new ones and complete running calls and teardowns.

    Calls and teardowns that take longer than `drain_timeout_s` are logged and cancelled; the next start completes them.
    """
    runner = web.AppRunner(
        make_app(methods, calls, connections, journal),
        access_log=None,
        shutdown_timeout=_CUT_OFF_S,
        handler_cancellation=False,
        auto_decompress=False,  # Docker compresses nothing, and a kilobyte could expand to a gigabyte
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  # it is set up
    try:
        # Not create_unix_server: from Python 3.13 on it removes the socket's file at the end, even one of systemd's.
        # `cnm_bridge.process.sockets` removes our own.
        loop = asyncio.get_running_loop()
        make_protocol = connections.guarded(runner.server)
        servers = [
            await loop.create_server(make_protocol, sock=one.sock, ssl=one.tls, backlog=_ACCEPT_AT_ONCE)
            for one in listeners
        ]
        for one in listeners:
            one.sock.listen(BACKLOG)  # the event loop has set the backlog to the number that it accepts per turn
        yield
        # asyncio drops sockets that it accepted in the turn in which the server is closed (cpython gh-109564). So
        # accepting stops first, and accepted sockets become connections before the server is closed.
        for one in listeners:
            loop.remove_reader(one.sock)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ARRIVAL_S):
                await connections.wait_arrived()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout_s):
                while calls.all or teardowns.requested_ids:  # a call may arrive meanwhile and begin a teardown
                    await calls.wait_none()
                    await teardowns.wait_tried(teardowns.requested_ids)
        if calls.all or teardowns.requested_ids:
            log.warning("daemon.cut_off", calls=calls.all, teardowns=sorted(teardowns.requested_ids))
    finally:
        await runner.cleanup()
