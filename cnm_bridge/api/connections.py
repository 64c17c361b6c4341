# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Limits the time and the number of connections to the plugin socket that have not sent a request yet.

aiohttp waits without limit for the first request of a connection, and accepts connections until the process has no
descriptor left. A client that only connects, or sends a byte a minute, would lock Docker out.

A deadline is the client's. If the event loop was busy when it passed, the request may have arrived long ago: it may
wait in the kernel, or have been read and not yet be a call. If the connection were closed then, the call would run and
its answer would be lost. So a connection is closed only after a turn of the event loop has found nothing new.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

__all__ = ["Connections"]

log = structlog.get_logger()

_REQUEST_LIMIT_S: Final = 20.0
_WAITING: Final = 512
"""Half of the 1024 descriptors that a process usually may have. dockerd sends its request as it connects."""
_LOOK_S: Final = 0.05
"""How long after its deadline a connection is looked at again: enough for a loop that is not busy to make a call of
what has arrived."""
_LOOKS: Final = 20
"""How often that is done while bytes come, or the loop is late: a second at least, and no client can prolong it."""
_HIDDEN: Final = "it is not known which containers run; run cni-bridge in the PID namespace of dockerd"
_UCRED: Final = struct.Struct("=iII")  # unix(7): PID, UID, GID


@dataclass(slots=True)
class _Waiting:
    """A connection that is waited for.

    Attributes:
        timer: Looks at it when its time is over.
        looks: How often it was looked at.
        has_input: Bytes have come since.
    """

    timer: asyncio.TimerHandle
    looks: int = 0
    has_input: bool = False


class Connections:
    """Knows which connections are still waited for, and ends those that take too long, or are too many.

    Args:
        limit_s: How long a request may take to come, in seconds from the beginning of its connection.
        waiting: How many connections are waited for at the same time; the one that has waited longest is ended then.
        on_hidden: Called once a caller is in a PID namespace that this process does not see into.
    """

    def __init__(
        self,
        *,
        limit_s: float = _REQUEST_LIMIT_S,
        waiting: int = _WAITING,
        on_hidden: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit_s = limit_s
        self._limit = waiting
        self._on_hidden = on_hidden
        self._has_said = False
        self._waiting: dict[asyncio.BaseTransport, _Waiting] = {}
        self._none_waiting = asyncio.Event()
        self._none_waiting.set()

    def guarded(self, make_protocol: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return what makes the same protocols, watched from here."""
        return lambda: _Guarded(make_protocol(), self)

    def arrived(self, transport: asyncio.BaseTransport | None) -> None:
        """Wait no longer for a connection's request: it is there, or the connection has ended."""
        if transport is not None and transport in self._waiting:
            self._waiting.pop(transport).timer.cancel()
            if not self._waiting:
                self._none_waiting.set()

    async def wait_arrived(self) -> None:
        """Wait until no connection is waited for; a request that has come is a call under way by then, or answered."""
        await self._none_waiting.wait()

    def find_caller(self, transport: asyncio.BaseTransport | None) -> int:
        """Return the PID of the process that makes a call, 0 if it cannot be seen; that is logged once."""
        pid = None if transport is None else _find_caller(transport)
        if pid == 0 and not self._has_said:
            self._has_said = True
            log.warning("caller.hidden", consequence=_HIDDEN)
            self._on_hidden()
        return pid or 0

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request of a new connection."""
        if len(self._waiting) >= self._limit:
            self._end(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(self._limit_s, self._look, transport)
        self._waiting[transport] = _Waiting(timer=timer)
        self._none_waiting.clear()

    def received(self, transport: asyncio.BaseTransport | None) -> None:
        """Take note that bytes have come on a connection."""
        if transport is not None and transport in self._waiting:
            self._waiting[transport].has_input = True

    def _look(self, transport: asyncio.BaseTransport) -> None:
        """End a connection whose time is over, unless its request may have come unseen."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting[transport]
        is_late = loop.time() - waiting.timer.when() > _LOOK_S
        if waiting.looks < _LOOKS and (waiting.looks == 0 or waiting.has_input or is_late):
            waiting.looks += 1
            waiting.has_input = False
            waiting.timer = loop.call_later(_LOOK_S, self._look, transport)
        else:
            self._end(transport)

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.arrived(transport)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()


def _find_caller(transport: asyncio.BaseTransport) -> int | None:
    """Return the process that has connected, 0 if the kernel has no number for it here (sock.c, `cred_to_ucred`)."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    pid: int
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid


class _Guarded(asyncio.Protocol):
    """Hands everything on; what is noted of a connection is its beginning, that bytes come, and its end."""

    def __init__(self, protocol: asyncio.Protocol, connections: Connections) -> None:
        self._protocol = protocol
        self._connections = connections
        self._transport: asyncio.BaseTransport | None = None
        # The pauses of writing come often: straight to whom they are for.
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections.opened(transport)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connections.received(self._transport)
        self._protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.arrived(self._transport)
        self._protocol.connection_lost(exc)
