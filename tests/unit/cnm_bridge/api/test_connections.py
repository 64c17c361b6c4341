# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A connection's time is the client's: what has arrived while the event loop was busy is answered."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from cnm_bridge.api import CallsUnderWay, Connections, Method, make_app
from spec import JsonObject

LIMIT_S: Final = 0.2
NETWORK: Final = b'{"NetworkID":"%s"' % (b"a1" * 32)


class Watched(Connections):
    """Tells when a connection is waited for."""

    def __init__(self) -> None:
        super().__init__(limit_s=LIMIT_S)
        self.has_opened = asyncio.Event()

    def opened(self, transport: asyncio.BaseTransport) -> None:
        """Note that a connection is waited for."""
        super().opened(transport)
        self.has_opened.set()


@asynccontextmanager
async def calling(path: Path, calls: list[JsonObject]) -> AsyncIterator[socket.socket]:
    """Serve one method that writes down its calls; give a connection that is waited for."""

    async def answer(body: JsonObject, _: int) -> JsonObject:
        calls.append(body)
        return {"Value": 1}

    connections = Watched()
    methods = [Method(name="NetworkDriver.Test", schema="cnm/NetworkReference", answer=answer)]
    runner = web.AppRunner(make_app(methods, CallsUnderWay(), connections), handler_cancellation=False)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_unix_server(connections.guarded(runner.server), path)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            await connections.has_opened.wait()
            yield client
    finally:
        server.close()
        await runner.cleanup()


def request(body: bytes) -> bytes:
    """Give a request as dockerd sends it."""
    return b"POST /NetworkDriver.Test HTTP/1.1\r\nHost: plugin\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def read(client: socket.socket) -> bytes:
    """Give all that comes until the connection ends."""
    client.setblocking(False)
    found = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(client, 65536):
        found += data
    return bytes(found)


@pytest.mark.parametrize("size", [0, 1 << 20], ids=["small", "large"])
async def test_a_request_that_came_while_the_loop_was_busy(tmp_path: Path, size: int) -> None:
    """It is carried out and answered, however late the loop is, and though a large one does not come in one piece."""
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


async def test_the_loop_is_busy_again_and_again(tmp_path: Path) -> None:
    """Between the request and its call the loop turns several times, and may be late each time."""
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
async def test_a_request_that_did_not_come(tmp_path: Path, data: bytes) -> None:
    """The connection ends without an answer, also when the loop was busy meanwhile; nothing is carried out."""
    calls: list[JsonObject] = []
    async with calling(tmp_path / "s", calls) as client:
        client.sendall(data)
        time.sleep(3 * LIMIT_S)  # noqa: ASYNC251
        with suppress(ConnectionResetError):  # what it sent had not all been read
            assert await read(client) == b""
    assert calls == []
