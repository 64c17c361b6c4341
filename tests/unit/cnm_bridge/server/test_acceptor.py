# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""At the cap, only a connection that no call can have arrived on is closed."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import structlog

from cnm_bridge.server.acceptor import accepting
from cnm_bridge.system.network_sockets import PLUGIN_SOCKET, Capacity, Listener
from cnm_bridge.system.sockets import listening


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


async def test_descriptors_that_are_kept_for_the_plugin_socket(tmp_path: Path) -> None:
    """Connections of another listener take three quarters at most; then a call of Docker is still answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 2 * max(_descriptors()) + 80
    with ExitStack() as stack, structlog.testing.capture_logs() as logged:
        others = stack.enter_context(listening(tmp_path / "others"))
        plugin = Listener(stack.enter_context(listening(tmp_path / "plugin")), capacity=PLUGIN_SOCKET)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        async with accepting([Listener(others, capacity=Capacity(waiting=limit)), plugin], lambda _: _Greeting):
            greetings = [b"!"]
            while greetings[-1]:
                greetings.append(await _read(_connect(tmp_path / "others", stack)))
            assert len(_descriptors()) == pytest.approx(limit * 0.75, abs=3)
            assert await _read(_connect(tmp_path / "plugin", stack)) == b"!"
    reasons = [line["reason"] for line in logged if line["event"] == "listener.crowded"]
    assert reasons == ["too few descriptors are free for the plugin socket"]


@pytest.mark.parametrize("name", ["file", "\0cni-bridge-test"], ids=["path", "abstract"])
async def test_a_socket_in_the_place_of_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is accepted on, and the former one is closed, whatever its name was: systemd's may have no file."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        former = stack.enter_context(socket.socket(socket.AF_UNIX))
        former.bind(name)
        former.listen()
        async with accepting([Listener(former)], lambda _: _Greeting) as renew:
            renew(Listener(stack.enter_context(listening(tmp_path / "admin"))))
            assert former.fileno() == -1
            assert await _read(_connect(tmp_path / "admin", stack)) == b"!"


def _descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


class _Greeting(asyncio.Protocol):
    """Sends a byte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"!")


def _connect(path: Path, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.socket(socket.AF_UNIX))
    client.connect(str(path))
    client.setblocking(False)
    return client
