# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The listeners besides the plugin socket withstand what it withstands, and Docker is answered meanwhile."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.core.settings import Settings
from tests.certificates import certificates_script
from tests.contract.serving import Served, serving
from tests.contract.test_hostile_http import BODIES, MALFORMED

KINDS: Final = ("admin", "tcp", "https", "metrics")
SILENT: Final = 300
"""More connections than a listener keeps without a request."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture(name="tls", scope="module")
def make_tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates of the daemon, of a client and of a stranger."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(("sh", "-euc", certificates_script("daemon", "docker")), cwd=directory, check=True)
    return directory


def client_context(tls: Path, client: str | None) -> ssl.SSLContext:
    """Return the TLS settings of a client with this certificate, or without one."""
    context = ssl.create_default_context(cafile=str(tls / "ca.pem"))
    if client is not None:
        context.load_cert_chain(tls / f"{client}.pem", tls / f"{client}-key.pem")
    return context


@asynccontextmanager
async def listening(tmp_path: Path, tls: Path, kind: str) -> AsyncIterator[tuple[Served, Connect]]:
    """Serve with a further listener; yield also what connects to it as its clients do."""
    certificates = Settings(tls_cert=tls / "daemon.pem", tls_key=tls / "daemon-key.pem", tls_ca=tls / "ca.pem")
    settings = {
        "admin": Settings(),
        "tcp": Settings(listen=("tcp://127.0.0.1:0",)),
        "https": replace(certificates, listen=("https://127.0.0.1:0",)),
        "metrics": Settings(metrics_listen="127.0.0.1:0"),
    }
    context = client_context(tls, "docker") if kind == "https" else None
    async with serving(tmp_path, settings[kind]) as served:
        if kind == "admin":
            yield served, partial(asyncio.open_unix_connection, served.admin)
        else:
            yield served, partial(asyncio.open_connection, "127.0.0.1", served.ports[-1], ssl=context)


async def send(connect: Connect, data: bytes, *, end: bool = False) -> bytes:
    """Send bytes on a new connection, and return everything that is received.

    Args:
        connect: Makes the connection.
        data: The bytes.
        end: Whether the client sends no more then: it closes its side, or with TLS, which has none, soon goes away.
    """
    reader, writer = await connect()
    try:
        async with asyncio.timeout(30 if writer.can_write_eof() or not end else 1):
            writer.write(data)
            if end and writer.can_write_eof():
                writer.write_eof()
            return await reader.read()
    except (ConnectionError, ssl.SSLError, TimeoutError):  # it was closed while we were still sending
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("kind", KINDS)
async def test_malformed_requests(tmp_path: Path, tls: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each gets a 4xx, an answer if it is valid after all, or is closed; the log has at most a line for all of them."""
    async with listening(tmp_path, tls, kind) as (served, connect):
        answers = await asyncio.gather(*(send(connect, data, end=True) for data in MALFORMED.values()))
        for name, answer in zip(MALFORMED, answers, strict=True):
            assert not answer or int(answer.split()[1]) < 500, name
            assert b"Traceback" not in answer, name
        assert await served.is_answering()
        assert not served.records()
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert (captured.out + captured.err).count("listener.bad_request") <= 1


@pytest.mark.parametrize("kind", ["admin", "metrics"])
async def test_bodies_are_not_read(tmp_path: Path, tls: Path, kind: str) -> None:
    """No request of these listeners has a body, so whatever it is, it changes nothing."""
    async with listening(tmp_path, tls, kind) as (served, connect):
        for name, body in BODIES.items():
            head = b"POST /NetworkDriver.CreateNetwork HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            answer = await send(connect, head + body)
            assert not answer or answer.split()[1] == b"404", name
        assert await served.is_answering()
        assert not served.records()


@pytest.mark.parametrize("kind", KINDS)
async def test_silent_connections(tmp_path: Path, tls: Path, kind: str) -> None:
    """The oldest are closed; the listener still answers, and so does the plugin socket."""
    async with listening(tmp_path, tls, kind) as (served, connect):
        opened = []
        with ExitStack() as stack:
            for _ in range(SILENT):
                silent = stack.enter_context(socket.socket(socket.AF_UNIX if kind == "admin" else socket.AF_INET))
                silent.setblocking(False)
                address = str(served.admin) if kind == "admin" else ("127.0.0.1", served.ports[-1])
                await asyncio.get_running_loop().sock_connect(silent, address)
                opened.append(silent)
            assert await served.is_answering()
            answer = await send(connect, b"GET /version HTTP/1.0\r\n\r\n")
            assert answer.startswith((b"HTTP/1.0 200", b"HTTP/1.0 404"))
            async with asyncio.timeout(10):
                assert await asyncio.get_running_loop().sock_recv(opened[0], 1) == b""
            with pytest.raises(BlockingIOError):
                opened[-1].recv(1)


@pytest.mark.parametrize("client", [None, "intruder"], ids=["no certificate", "certificate of a stranger"])
async def test_strangers_are_not_answered(tmp_path: Path, tls: Path, client: str | None) -> None:
    """However many there are: who has no certificate of our authority reaches no call."""
    async with listening(tmp_path, tls, "https") as (served, _):
        context = client_context(tls, client)
        connect = partial(asyncio.open_connection, "127.0.0.1", served.ports[-1], ssl=context)
        for _ in range(20):
            with suppress(ssl.SSLError, ConnectionError):  # with TLS 1.3 the client learns it when it reads
                assert await send(connect, b"POST /Plugin.Activate HTTP/1.0\r\n\r\n") == b""
        assert await served.is_answering()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_closes_its_connection(tmp_path: Path, tls: Path, kind: str) -> None:
    """One that is kept open would take a descriptor."""
    async with listening(tmp_path, tls, kind) as (_, connect):
        answer = await send(connect, b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Connection: close" in answer
