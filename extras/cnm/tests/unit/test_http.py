# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One request over HTTP/1.0, and what counts as a complete answer."""

import socket
import threading

import pytest

from cnm_plugin.http import post

REQUEST = (
    b"POST /NetworkDriver.Join HTTP/1.0\r\n"
    b"Accept: application/vnd.docker.plugins.v1.2+json\r\n"
    b"Host: plugin.moby.localhost\r\n"
    b"Content-Length: 2\r\n\r\n{}"
)


def exchange(answer: bytes, *, stays_open: bool = False) -> tuple[int, bytes]:
    """Make the request to a server that gives one answer, and return what `post` returns."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        received = b""
        while len(received) < len(REQUEST):
            received += theirs.recv(65536)
        assert received == REQUEST
        theirs.sendall(answer)
        if not stays_open:
            theirs.close()

    with ours, theirs:
        ours.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return post(ours, "/NetworkDriver.Join", b"{}")
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n{}", 200, b"{}"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nconnection: close\r\n\r\n{}", 200, b"{}"),
        (b"HTTP/1.1 404\r\nCONTENT-LENGTH:  3 \r\n\r\nxyz", 404, b"xyz"),
        (b"HTTP/1.1 500 Internal Server Error\nContent-Length: 0\n\n", 500, b""),
        (b"HTTP/1.0 204 No Content\r\n\r\n", 204, b""),
    ],
)
def test_answers(answer: bytes, status: int, content: bytes) -> None:
    """They end with the connection, or after their length."""
    assert exchange(answer) == (status, content)


def test_a_connection_that_stays_open() -> None:
    """A server that keeps connections is not waited for."""
    assert exchange(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", stays_open=True) == (200, b"{}")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "no answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP: 'SSH-2.0-OpenSSH_9.2"),
        (b"HTTP/1.1 banana\r\n\r\n", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP: 'HTTP/2'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "transfer encoding chunked"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "ends after 2 of 9 bytes"),
        (b"HTTP/1.1 200 OK\r\n", "ends in its headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "ends in its headers"),
    ],
)
def test_what_is_not_a_complete_answer(answer: bytes, reason: str) -> None:
    """It is an error of the connection: what the driver did is not known."""
    with pytest.raises(OSError, match=reason):
        exchange(answer)
