# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The listeners besides the plugin socket withstand what it withstands, and Docker is answered meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.core.settings import Settings
from tests.contract.serving import Served, serving
from tests.contract.test_hostile_http import BODIES, MALFORMED

KINDS: Final = ("admin", "metrics")
SILENT: Final = 100
"""More connections than there may be for metrics."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def listening(tmp_path: Path, kind: str) -> AsyncIterator[tuple[Served, Connect]]:
    """Serve with a further listener; yield also what connects to it as its clients do."""
    async with serving(tmp_path, Settings(metrics_listen="127.0.0.1:0")) as served:
        if kind == "admin":
            yield served, partial(asyncio.open_unix_connection, served.admin)
        else:
            yield served, partial(asyncio.open_connection, "127.0.0.1", served.port)


async def send(connect: Connect, data: bytes, *, end: bool = False) -> bytes:
    """Send bytes on a new connection, and return everything that is received."""
    reader, writer = await connect()
    try:
        async with asyncio.timeout(30):
            writer.write(data)
            if end:
                writer.write_eof()
            return await reader.read()
    except ConnectionError:  # it was closed while we were still sending
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
async def test_malformed_requests(tmp_path: Path, kind: str) -> None:
    """Each gets a 4xx, an answer if it is valid after all, or is closed."""
    async with listening(tmp_path, kind) as (served, connect):
        answers = await asyncio.gather(*(send(connect, data, end=True) for data in MALFORMED.values()))
        for name, answer in zip(MALFORMED, answers, strict=True):
            assert not answer or int(answer.split()[1]) < 500, name
            assert b"Traceback" not in answer, name
        assert await served.is_answering()
        assert not served.records()


@pytest.mark.parametrize("kind", KINDS)
async def test_bodies_are_not_read(tmp_path: Path, kind: str) -> None:
    """No request of these listeners has a body, so whatever it is, it changes nothing."""
    async with listening(tmp_path, kind) as (served, connect):
        for name, body in BODIES.items():
            head = b"POST /NetworkDriver.CreateNetwork HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            answer = await send(connect, head + body)
            assert not answer or answer.split()[1] == b"404", name
        assert await served.is_answering()
        assert not served.records()


async def test_silent_connections_for_metrics(tmp_path: Path) -> None:
    """Of more than there may be, the oldest are closed; the plugin socket answers, and so do metrics."""
    async with listening(tmp_path, "metrics") as (served, connect):
        opened = [await connect() for _ in range(SILENT)]
        async with asyncio.timeout(10):
            assert await opened[0][0].read() == b""
        assert await served.is_answering()
        for _ in range(3):
            assert (await send(connect, b"GET /metrics HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert not opened[-1][0].at_eof()
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_closes_its_connection(tmp_path: Path, kind: str) -> None:
    """One that is kept open would take a descriptor."""
    async with listening(tmp_path, kind) as (_, connect):
        answer = await send(connect, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Connection: close" in answer
