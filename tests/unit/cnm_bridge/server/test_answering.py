# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A call that arrives while the daemon stops is answered, or left to the next daemon; none is lost."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.settings import Settings

CALL: Final = b"POST /Plugin.Activate HTTP/1.1\r\nHost: plugin\r\nContent-Length: 0\r\n\r\n"
ANSWER: Final = b'{"Implements":["NetworkDriver","IpamDriver"]}'


@pytest.fixture(name="daemon")
def make_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """The daemon's objects, with their own state and run directories."""
    store = Store.open(tmp_path / "state")
    where = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/none")
    yield assemble(where, store)
    store.close()


@pytest.fixture(name="given")
def make_given(tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket from systemd, which stays open when the daemon has stopped."""
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(tmp_path / "s"))
        given.listen()
        given.setblocking(False)
        yield given


@pytest.fixture(name="client")
def make_client() -> Iterator[socket.socket]:
    """A client that is not connected yet."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        yield client


async def run_loop(times: int) -> None:
    """Run this many iterations of the event loop."""
    for _ in range(times):
        await asyncio.sleep(0)


async def read(client: socket.socket) -> bytes:
    """Return everything received until the connection is closed."""
    found = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(client, 65536):
        found += data
    return bytes(found)


@pytest.mark.parametrize("turns", range(8))
async def test_a_call_that_arrives_with_the_stop_is_answered_or_left(
    daemon: Daemon, given: socket.socket, client: socket.socket, turns: int
) -> None:
    """However far the event loop has got with the connection, the call is answered, or stays in the backlog."""
    async with daemon.answering(given.dup()):
        client.connect(given.getsockname())
        client.sendall(CALL)
        await run_loop(turns)
    try:
        connection, _ = given.accept()
    except BlockingIOError:
        assert (await read(client)).endswith(ANSWER)
    else:
        with connection:
            assert connection.recv(4096) == CALL


async def test_a_late_request_of_an_accepted_client_is_answered(
    daemon: Daemon, given: socket.socket, client: socket.socket
) -> None:
    """The client was accepted before the stop, and sends its request after it."""
    loop = asyncio.get_running_loop()
    async with daemon.answering(given.dup()):
        client.connect(given.getsockname())
        await run_loop(8)
        loop.call_later(0.2, client.sendall, CALL)
    assert (await read(client)).endswith(ANSWER)


async def test_a_silent_client_does_not_prevent_the_stop(
    daemon: Daemon, given: socket.socket, client: socket.socket
) -> None:
    """Its connection is closed without an answer."""
    async with daemon.answering(given.dup()):
        client.connect(given.getsockname())
        await run_loop(8)
    assert await read(client) == b""
