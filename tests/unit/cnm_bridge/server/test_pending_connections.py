# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The time limit of a connection is the client's: a request that arrived while the event loop was busy is answered."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.server.acceptor import accepting, running
from cnm_bridge.server.api import CallsUnderWay, Method, make_app
from cnm_bridge.server.pending_connections import PendingConnections
from cnm_bridge.system.sockets import Listener, listening

LIMIT_S: Final = 0.2
NETWORK: Final = b'{"NetworkID":"%s"' % (b"a1" * 32)


class Watched(PendingConnections):
    """Sets an event when the limit of a connection begins."""

    def __init__(self) -> None:
        super().__init__(limit_s=LIMIT_S)
        self.has_opened = asyncio.Event()

    def opened(self, transport: asyncio.BaseTransport, others: dict[asyncio.BaseTransport, bool]) -> None:
        """Note that the limit of a connection begins."""
        super().opened(transport, others)
        self.has_opened.set()


@asynccontextmanager
async def calling(path: Path, calls: list[JsonObject]) -> AsyncIterator[socket.socket]:
    """Serve one method that records its calls, and yield a connection whose limit has begun."""

    async def answer(body: JsonObject, _: int) -> JsonObject:
        calls.append(body)
        return {"Value": 1}

    connections = Watched()
    methods = [Method(name="NetworkDriver.Test", schema="cnm/NetworkReference", answer=answer)]
    with listening(path) as sock:
        async with (
            running(make_app(methods, CallsUnderWay(), connections), cancels=False) as server,
            accepting([Listener(sock)], lambda one: connections.guarded(server, one)),
        ):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                await connections.has_opened.wait()
                yield client


def request(body: bytes) -> bytes:
    """Return a request as dockerd sends it."""
    return b"POST /NetworkDriver.Test HTTP/1.1\r\nHost: plugin\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def read(client: socket.socket) -> bytes:
    """Return everything received until the connection is closed."""
    client.setblocking(False)
    found = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(client, 65536):
        found += data
    return bytes(found)


@pytest.mark.parametrize("size", [0, 1 << 20], ids=["small", "large"])
async def test_a_request_received_while_the_loop_is_busy_is_answered(tmp_path: Path, size: int) -> None:
    """It is answered however late the loop is, and even if it is too large to arrive at once."""
    data = request(NETWORK + b',"Since":"' + size * b"x" + b'"}')
    calls: list[JsonObject] = []
    async with calling(tmp_path / "s", calls) as client:
        sender = threading.Thread(target=client.sendall, args=[data])
        sender.start()
        if size == 0:
            sender.join()
        time.sleep(3 * LIMIT_S)  # noqa: ASYNC251  # blocks the loop beyond the deadline, which is the point
        answer = await read(client)
        await asyncio.to_thread(sender.join)
    assert len(calls) == 1
    assert answer.endswith(b'{"Value":1}')


async def test_a_request_is_answered_although_the_loop_is_busy_repeatedly(tmp_path: Path) -> None:
    """Several iterations of the loop lie between request and call, and each may be late."""
    calls: list[JsonObject] = []
    loop = asyncio.get_running_loop()
    async with calling(tmp_path / "s", calls) as client:
        client.sendall(request(NETWORK + b"}"))

        def block(times: int) -> None:
            time.sleep(LIMIT_S)
            if times:
                loop.call_soon(block, times - 1)

        block(8)
        assert (await read(client)).endswith(b'{"Value":1}')
    assert len(calls) == 1


@pytest.mark.parametrize("data", [b"", request(NETWORK + b"}")[:-1]], ids=["nothing", "all but a byte"])
async def test_a_connection_without_a_complete_request_is_closed(tmp_path: Path, data: bytes) -> None:
    """It is closed without an answer, also if the loop was busy meanwhile; no call is made."""
    calls: list[JsonObject] = []
    async with calling(tmp_path / "s", calls) as client:
        client.sendall(data)
        time.sleep(3 * LIMIT_S)  # noqa: ASYNC251
        with suppress(ConnectionResetError):  # what it sent had not all been read
            assert await read(client) == b""
    assert calls == []
