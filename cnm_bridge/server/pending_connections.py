# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Limits the time and the number of connections that have not sent a request yet.

aiohttp waits without limit for the first request of a connection, and accepts connections until the process has no
descriptor left. A client that only connects, or sends a byte a minute, would lock Docker out.

If the event loop was busy when a deadline passed, the request may have arrived in time: it may still be in the kernel,
or have been read and not yet be a call. If the connection were closed then, the call would run and its reply would be
lost. So a connection is closed only after a turn of the event loop has found nothing new.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from cnm_bridge.system.log import RateLimit
from cnm_bridge.system.sockets import Listener, find_peer

log = structlog.get_logger()

HIDDEN: Final = (
    "it is not known which containers run, so an endpoint whose sandbox is mounted stays unless Docker deletes it; run "
    "cni-bridge in the PID namespace of dockerd"
)
"""What it means if processes of the engine, and so of containers, are not visible; for the log."""
_REQUEST_LIMIT_S: Final = 20.0
_LOOK_S: Final = 0.05
"""Pause between a deadline and the next check; enough for an idle event loop to start the call of a request."""
_LOOKS: Final = 20
"""Number of further checks while bytes arrive or the loop is late: one second in total, which no client can extend."""


@dataclass(slots=True)
class _Waiting:
    """A connection whose request has not arrived.

    Attributes:
        others: The connections of the same listener, the oldest first, and whether their request has arrived.
        timer: Calls the next check.
        looks: Number of checks so far.
        has_input: Whether bytes have arrived since the last check.
    """

    others: dict[asyncio.BaseTransport, bool]
    timer: asyncio.TimerHandle
    looks: int = 0
    has_input: bool = False


class PendingConnections:
    """Tracks connections without a request, and closes those that are too slow or too many.

    Args:
        limit_s: Time limit for the request, in seconds from the beginning of the connection.
        is_brief: Whether the time limit is that of the answer, too.
        on_hidden: Called when a caller is in a PID namespace that is not visible from here.
    """

    def __init__(
        self,
        *,
        limit_s: float = _REQUEST_LIMIT_S,
        is_brief: bool = False,
        on_hidden: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit_s = limit_s
        self._is_brief = is_brief
        self._on_hidden = on_hidden
        self._has_said = False
        self._waiting: dict[asyncio.BaseTransport, _Waiting] = {}
        self._none_waiting = asyncio.Event()
        self._none_waiting.set()

    def guarded(
        self, make_protocol: Callable[[], asyncio.Protocol], listener: Listener
    ) -> Callable[[], asyncio.Protocol]:
        """Return a factory of the protocols of a listener, which wraps another one and reports their connections here.

        If too many connections of the listener wait, the oldest is closed for a new one, first of those without a
        request.
        """
        others: dict[asyncio.BaseTransport, bool] = {}
        address, crowded = listener.address, RateLimit()

        def on_opened(transport: asyncio.BaseTransport) -> None:
            if len(others) >= listener.capacity.waiting:
                self._end(next((one for one, has_request in others.items() if not has_request), next(iter(others))))
                if count := crowded.count():
                    reason = "too many connections without a request"
                    log.warning("listener.crowded", socket=address, reason=reason, count=count)
            self.opened(transport, others)

        return lambda: _Guarded(make_protocol(), self, on_opened)

    def arrived(self, transport: asyncio.BaseTransport | None) -> None:
        """Stop tracking a connection, because its request has arrived; keep the time limit of a brief one."""
        if not self._is_brief:
            self.ended(transport)
        elif transport in self._waiting:
            self._waiting[transport].others[transport] = True

    def ended(self, transport: asyncio.BaseTransport | None) -> None:
        """Stop tracking a connection."""
        if transport is not None and transport in self._waiting:
            waiting = self._waiting.pop(transport)
            waiting.timer.cancel()
            del waiting.others[transport]
            if not self._waiting:
                self._none_waiting.set()

    async def wait_arrived(self) -> None:
        """Wait until no connection is tracked. Every request that has arrived is then a running call or answered."""
        await self._none_waiting.wait()

    def find_caller(self, transport: asyncio.BaseTransport | None) -> int:
        """Return the PID of the calling process, 0 if it is not visible, which is logged once."""
        pid = None if transport is None else find_peer(transport.get_extra_info("socket"))
        if pid == 0 and not self._has_said:
            self._has_said = True
            log.warning("caller.hidden", consequence=HIDDEN)
            self._on_hidden()
        return pid or 0

    def opened(self, transport: asyncio.BaseTransport, others: dict[asyncio.BaseTransport, bool]) -> None:
        """Start tracking a new connection, as the last one of its listener's."""
        others[transport] = False
        timer = asyncio.get_running_loop().call_later(self._limit_s, self._look, transport)
        self._waiting[transport] = _Waiting(others=others, timer=timer)
        self._none_waiting.clear()

    def received(self, transport: asyncio.BaseTransport | None) -> None:
        """Record that bytes have arrived on a connection."""
        if transport is not None and transport in self._waiting:
            self._waiting[transport].has_input = True

    def _look(self, transport: asyncio.BaseTransport) -> None:
        """Close a connection after its deadline, unless its request may have arrived and not been processed."""
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
        self.ended(transport)
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()


class _Guarded(asyncio.Protocol):
    """Wraps a protocol and reports the beginning, the arrival of bytes and the end of its connection."""

    def __init__(
        self,
        protocol: asyncio.Protocol,
        connections: PendingConnections,
        on_opened: Callable[[asyncio.BaseTransport], None],
    ) -> None:
        self._on_opened = on_opened
        self._protocol = protocol
        self._connections = connections
        self._transport: asyncio.BaseTransport | None = None
        # called often, so not wrapped
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._on_opened(transport)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connections.received(self._transport)
        self._protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.ended(self._transport)
        self._protocol.connection_lost(exc)
