# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`GET /metrics` on a TCP socket, to which strangers can connect: they get no other code of the daemon."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from cnm_bridge.server.admin.metrics import CONTENT_TYPE

_AT_ONCE: Final = 32
"""Connections at a time. For a further one the oldest that has sent no request is closed, else it is closed itself. So
strangers leave the descriptors to Docker, and do not keep a scraper out by silence."""
_LIMIT_S: Final = 20.0
"""Time limit of a connection."""
_LONGEST: Final = 8192
"""Bytes of a request."""


@asynccontextmanager
async def answering_scrapes(
    sock: socket.socket | None, give_metrics: Callable[[], Awaitable[bytes]]
) -> AsyncIterator[None]:
    """Answer scrapes on a listening socket during the block; do nothing without one."""
    if sock is None:
        yield
        return
    open_now: set[asyncio.StreamWriter] = set()
    without_request: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        without_request[writer] = None
        if len(open_now) > _AT_ONCE:
            oldest = next(iter(without_request))
            oldest.transport.abort()
            open_now.discard(oldest)
            del without_request[oldest]
            if oldest is writer:
                return
        try:
            with suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_LIMIT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    without_request.pop(writer, None)
                    writer.write(await _answer(head, give_metrics))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            open_now.discard(writer)
            without_request.pop(writer, None)
            writer.transport.abort()

    server = await asyncio.start_server(serve, sock=sock, limit=_LONGEST, backlog=_AT_ONCE)
    try:
        yield
    finally:
        server.close()
        for writer in tuple(open_now):
            writer.transport.abort()


async def _answer(head: bytes, give_metrics: Callable[[], Awaitable[bytes]]) -> bytes:
    method, target, *_ = (*head.split(b" ", 2), b"")
    if (method, target.partition(b"?")[0]) != (b"GET", b"/metrics"):
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    body = await give_metrics()
    fields = f"Content-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + body
