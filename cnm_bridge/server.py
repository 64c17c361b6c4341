# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The server on the plugin socket, from its first call to its last.

A call that comes while the daemon stops must not be lost: dockerd would repeat it with an empty body, which is refused,
and a container would not start. Who has been accepted is answered; others stay in the socket's queue, where the next
daemon finds them if the socket is systemd's.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog
from aiohttp import web

from cnm_bridge.api import CallsUnderWay, Connections, Method, make_app
from cnm_bridge.sockets import BACKLOG
from cnm_bridge.teardown.queue import TeardownQueue

__all__ = ["answering"]

log = structlog.get_logger()

_CUT_OFF_S: Final = 0.1
"""How long a connection is waited for that has no call under way, or one that is cut off."""

_ARRIVAL_S: Final = 1.0
"""How long the end waits for the requests of connections that are open; dockerd sends its request as it connects."""

_TURNS: Final = 2
"""Of the event loop: what has been accepted becomes a transport in one, and `Connections` knows it after the next."""

_ACCEPT_AT_ONCE: Final = 64
"""A flood of connections is taken in portions, so that requests that are there already come first."""


@asynccontextmanager
async def answering(
    sock: socket.socket,
    methods: Iterable[Method],
    *,
    calls: CallsUnderWay,
    connections: Connections,
    teardowns: TeardownQueue,
    drain_timeout_s: float,
) -> AsyncIterator[None]:
    """Answer calls on a listening socket; at the end accept no new ones and complete running calls and teardowns.

    What is not done after `drain_timeout_s` is cancelled, and said; its endpoint is undone at the next start.
    """
    runner = web.AppRunner(
        make_app(methods, calls, connections),
        access_log=None,
        shutdown_timeout=_CUT_OFF_S,
        handler_cancellation=False,
        auto_decompress=False,  # Docker sends nothing compressed, and a kilobyte can become a gigabyte
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  # it is set up
    try:
        # Not create_unix_server: from Python 3.13 on it removes the socket's file at the end, even one of systemd's.
        # `cnm_bridge.sockets` removes our own.
        loop = asyncio.get_running_loop()
        server = await loop.create_server(connections.guarded(runner.server), sock=sock, backlog=_ACCEPT_AT_ONCE)
        sock.listen(BACKLOG)  # the event loop has set both to what it accepts at once
        yield
        # asyncio drops what it has accepted in the same turn of the loop in which the server is closed (cpython
        # gh-109564): first it accepts no more, then what it has accepted becomes a connection.
        loop.remove_reader(sock)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
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
