# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A call that comes while the daemon stops is answered, or left to the next daemon; none is lost."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.settings import Settings
from state import Store

CALL: Final = b"POST /Plugin.Activate HTTP/1.1\r\nHost: plugin\r\nContent-Length: 0\r\n\r\n"
ANSWER: Final = b'{"Implements":["NetworkDriver"]}'
DRAIN_S: Final = 30.0


@pytest.fixture(name="daemon")
def make_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """The daemon's objects, with state and directories of their own."""
    store = Store.open(tmp_path / "state")
    where = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/none")
    yield assemble(where, store)
    store.close()


@pytest.fixture(name="given")
def make_given(tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket that is systemd's: it stays open when the daemon has ended."""
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(tmp_path / "s"))
        given.listen()
        given.setblocking(False)
        yield given


@pytest.fixture(name="client")
def make_client() -> Iterator[socket.socket]:
    """A client that has not connected yet."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        yield client


async def turn(times: int) -> None:
    """Let the event loop turn so often."""
    for _ in range(times):
        await asyncio.sleep(0)


async def read(client: socket.socket) -> bytes:
    """Give all that comes until the connection ends."""
    found = bytearray()
    while data := await asyncio.get_running_loop().sock_recv(client, 65536):
        found += data
    return bytes(found)


@pytest.mark.parametrize("turns", range(8))
async def test_a_call_that_comes_with_the_stop(
    daemon: Daemon, given: socket.socket, client: socket.socket, turns: int
) -> None:
    """Whatever the event loop has done with the connection by then, from nothing at all to the answer."""
    async with daemon.answering(given.dup(), DRAIN_S):
        client.connect(given.getsockname())
        client.sendall(CALL)
        await turn(turns)
    try:
        next_daemons, _ = given.accept()
    except BlockingIOError:
        assert (await read(client)).endswith(ANSWER)
    else:
        with next_daemons:
            assert next_daemons.recv(4096) == CALL


async def test_a_request_that_comes_after_the_stop(daemon: Daemon, given: socket.socket, client: socket.socket) -> None:
    """A client that has been accepted, and was too slow to send its request before the stop, is answered."""
    loop = asyncio.get_running_loop()
    async with daemon.answering(given.dup(), DRAIN_S):
        client.connect(given.getsockname())
        await turn(8)
        loop.call_later(0.2, client.sendall, CALL)
    assert (await read(client)).endswith(ANSWER)


async def test_a_client_that_says_nothing(daemon: Daemon, given: socket.socket, client: socket.socket) -> None:
    """It does not keep the daemon from ending."""
    async with daemon.answering(given.dup(), DRAIN_S):
        client.connect(given.getsockname())
        await turn(8)
    assert await read(client) == b""
