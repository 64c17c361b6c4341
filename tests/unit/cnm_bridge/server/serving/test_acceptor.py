# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""At the cap, only a connection that no call can have arrived on is closed."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cnm_bridge.server.serving import accepting
from cnm_bridge.system.process.network_sockets import Capacity, Listener
from cnm_bridge.system.process.sockets import listening


class Serving:
    """A listener for one connection that has begun, whose accepting the test can start at any moment."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self.made: list[int] = []
        self.accept: Callable[[], None] = lambda: None
        self.on_protocol: Callable[[int], None] = lambda _: None
        self.on_made: Callable[[int], None] = lambda _: None
        self._stack = stack
        self._protocols = 0

    def connect(self) -> socket.socket:
        """Connect a client, which sends a byte, and accept it now."""
        client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(str(self.path))
        client.send(b"?")
        client.setblocking(False)
        self.accept()
        return client

    def make_protocol(self) -> asyncio.Protocol:
        """Return the protocol of the next connection, which answers with its number."""
        number = self._protocols
        self._protocols += 1
        self.on_protocol(number)
        serving = self

        class Numbered(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                serving.made.append(number)
                assert isinstance(transport, asyncio.WriteTransport)
                self.transport = transport
                serving.on_made(number)

            def data_received(self, data: bytes) -> None:
                assert data == b"?"
                self.transport.write(b"%d" % number)

        return Numbered()


@pytest.fixture(name="serving")
async def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """A listener whose capacity is one connection that has begun."""
    async with _serving(tmp_path / "s", monkeypatch) as serving:
        yield serving


@asynccontextmanager
async def _serving(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    with ExitStack() as stack, listening(path) as sock:
        serving = Serving(path, stack)

        def add_reader(_: socket.socket, accept: Callable[[], None]) -> None:
            serving.accept = accept

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
        listener = Listener(sock, capacity=Capacity(waiting=1))
        async with accepting([listener], lambda _: serving.make_protocol):
            yield serving


async def _read(client: socket.socket) -> bytes:
    async with asyncio.timeout(30):
        try:
            return await asyncio.get_running_loop().sock_recv(client, 100)
        except ConnectionResetError:  # what it sent was not read
            return b""


async def test_a_connection_that_was_made_is_not_closed_for_a_new_one(serving: Serving) -> None:
    """Its call may have arrived, and would run without an answer."""

    def on_made(number: int) -> None:
        if number == 0:
            serving.connect()

    serving.on_made = on_made
    first = serving.connect()
    assert await _read(first) == b"0"


async def test_a_connection_that_is_closed_for_a_new_one_gets_no_call(serving: Serving) -> None:
    """It is closed before its protocol learns of it, also if it was made in the same turn of the event loop."""
    others: list[socket.socket] = []

    def on_protocol(number: int) -> None:
        if number == 0:
            others.append(serving.connect())

    serving.on_protocol = on_protocol
    first = serving.connect()
    assert await _read(first) == b""
    assert await _read(others[0]) == b"1"
    assert serving.made == [1]
