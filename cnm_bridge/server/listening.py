# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP on the two Unix sockets, which only root can use."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web

from cnm_bridge.system.log import RateLimit
from cnm_bridge.system.sockets import BACKLOG

log = structlog.get_logger()

_PAUSE_S: Final = 0.25
"""Pause after an accept that failed, usually because the process has no descriptor left."""

_CUT_OFF_S: Final = 0.1
"""Time limit at the end for connections without a running request, or with one that was cancelled."""


@asynccontextmanager
async def running(app: web.Application, *, cancels: bool) -> AsyncIterator[web.Server]:
    """Yield the server of an application, which makes the protocols of its connections; end them after the block.

    With `cancels` an answer is cancelled when its client disconnects.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_CUT_OFF_S,
        handler_cancellation=cancels,
        auto_decompress=False,  # Docker compresses nothing, and a kilobyte could expand to a gigabyte
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  # it is set up
    try:
        yield runner.server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def accepting(sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[None]:
    """Accept connections on a listening socket during the block; then close the socket.

    When the block has ended, each accepted socket has become a connection. What the kernel has not handed over stays in
    the queue: if systemd owns the socket, the next daemon accepts it. (asyncio's own servers drop what they have
    accepted last, and log an error for each connection in the queue if there is no descriptor left.)
    """
    loop = asyncio.get_running_loop()
    begun: set[asyncio.Task[object]] = set()
    failed = RateLimit()
    pause: asyncio.TimerHandle | None = None

    def accept() -> None:
        nonlocal pause
        try:
            connection, _ = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as exc:
            if count := failed.count():
                log.warning("listener.not_accepted", socket=sock.getsockname(), error=str(exc), count=count)
            loop.remove_reader(sock)
            pause = loop.call_later(_PAUSE_S, loop.add_reader, sock, accept)
            return
        connection.setblocking(False)
        task = loop.create_task(loop.connect_accepted_socket(make_protocol, connection))
        begun.add(task)
        task.add_done_callback(begun.discard)

    sock.setblocking(False)
    sock.listen(BACKLOG)
    loop.add_reader(sock, accept)
    try:
        yield
    finally:
        if pause is not None:
            pause.cancel()
        loop.remove_reader(sock)
        sock.close()
        await asyncio.gather(*begun, return_exceptions=True)  # a client may have gone
