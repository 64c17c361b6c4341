# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What connections may take, and a socket in the place of another one."""

import asyncio
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from cnm_bridge.server.acceptor import accepting
from cnm_bridge.system.sockets import PLUGIN_SOCKET, Capacity, Listener, listening


async def _read(client: socket.socket) -> bytes:
    async with asyncio.timeout(30):
        try:
            return await asyncio.get_running_loop().sock_recv(client, 100)
        except ConnectionResetError:  # what it sent was not read
            return b""


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
