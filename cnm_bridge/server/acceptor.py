# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP on a listening socket that strangers can reach: what they can take of the daemon is limited.

asyncio's own servers allow any number of connections. If the process has no descriptor left, they log one error per
connection that could be in the queue, each second.
"""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from cnm_bridge.system.log import RateLimit
from cnm_bridge.system.sockets import Listener

log = structlog.get_logger()

_PAUSE_S: Final = 0.25
"""Pause after an accept that failed, usually because the process has no descriptor left."""

_TURNS: Final = 8
"""A listener's connections without a request may come in this many turns of the event loop at least, so that one of
them that does send its request is not closed, as the oldest, before the request has been read."""

_CUT_OFF_S: Final = 0.1
"""Time limit at the end for connections without a running request, or with one that was cancelled."""


@asynccontextmanager
async def running(app: web.Application, *, cancels: bool) -> AsyncIterator[web.Server]:
    """Yield the server of an application, which makes the protocols of its connections; end them after the block.

    Args:
        app: Answers the requests.
        cancels: Whether an answer is cancelled when its client disconnects.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_CUT_OFF_S,
        handler_cancellation=cancels,
        auto_decompress=False,  # Docker compresses nothing, and a kilobyte could expand to a gigabyte
        logger=_make_logger(),
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  # it is set up
    try:
        yield runner.server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def accepting(
    listeners: Iterable[Listener], protocol_for: Callable[[Listener], Callable[[], asyncio.Protocol]]
) -> AsyncIterator[None]:
    """Accept connections on listening sockets during the block; then close the sockets.

    When the block has ended, each accepted socket has become a connection of its protocol, or is closed. What the
    kernel has not handed over stays in the queue: if systemd owns the socket, the next daemon accepts it.

    Args:
        listeners: The listening sockets.
        protocol_for: Returns the factory of the protocols of a listener's connections.
    """
    acceptors = [_Acceptor(one, protocol_for(one)) for one in listeners]

    try:
        yield
    finally:
        for acceptor in acceptors:
            acceptor.stop()
        for acceptor in acceptors:
            await acceptor.wait_begun()


class _Acceptor:
    """Accepts the connections of one listener.

    Args:
        listener: The listening socket.
        make_protocol: Returns the protocol of a connection.
    """

    def __init__(self, listener: Listener, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._address = listener.address  # a closed socket has none
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._begun: set[asyncio.Task[None]] = set()
        self._crowded, self._failed = RateLimit(), RateLimit()
        listener.sock.setblocking(False)
        listener.sock.listen(listener.capacity.backlog)
        self._start()

    def stop(self) -> None:
        """Accept no more, and close the socket, if that has not been done."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.sock.fileno() >= 0:
            self._loop.remove_reader(self._listener.sock)
            self._listener.sock.close()

    async def wait_begun(self) -> None:
        """Wait until each accepted socket has become a connection, which takes a turn of the event loop."""
        await asyncio.gather(*self._begun)

    def _start(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.sock, self._accept)

    def _accept(self) -> None:
        """Accept what is in the queue, some connections in each turn of the event loop."""
        for _ in range(max(1, self._listener.capacity.waiting // _TURNS)):
            try:
                connection, _ = self._listener.sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as exc:
                if count := self._failed.count():
                    log.warning("listener.not_accepted", socket=self._address, error=str(exc), count=count)
                self._loop.remove_reader(self._listener.sock)
                self._pause = self._loop.call_later(_PAUSE_S, self._start)
                return
            if self._is_reserved(connection):
                connection.close()
                if count := self._crowded.count():
                    reason = "too few descriptors are free for the plugin socket"
                    log.warning("listener.crowded", socket=self._address, reason=reason, count=count)
                continue
            connection.setblocking(False)
            task = self._loop.create_task(self._connect(connection))  # `wait_begun` awaits it
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    def _is_reserved(self, connection: socket.socket) -> bool:
        """Return whether a connection has a descriptor that is kept for others: the kernel gives the lowest one."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return connection.fileno() >= soft * self._listener.capacity.share

    async def _connect(self, connection: socket.socket) -> None:
        """Make a connection of an accepted socket."""
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:
            pass  # the client has gone
        except Exception:  # a bug with one connection must not end the daemon
            log.exception("listener.bug", socket=self._address)


def _make_logger() -> logging.Logger:
    """Return a logger for aiohttp, which logs each request that is not HTTP as an error with a traceback."""
    logger = logging.Logger("aiohttp", logging.ERROR)  # noqa: LOG001  # one of the process's would keep the handler
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.Handler):
    """Logs invalid requests seldom, and bugs as what they are."""

    def __init__(self) -> None:
        super().__init__()
        self._bad = RateLimit()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, or count it."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            log.error("rpc.bug", what=record.getMessage(), exc_info=error)
        elif count := self._bad.count():
            # its text would quote what was received, which may hold a password
            log.warning("listener.bad_request", error=f"{type(error).__name__} ({error.code})", count=count)
