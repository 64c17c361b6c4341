# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests at a real socket: every failure is an OSError, and half an answer is none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cnm_bridge.operator.cli.http_client import ask_server


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[str]:
    """Answer one request with some bytes, and close the connection; yield the address."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer_once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 599 \r\nContent-Length: 2\r\n\r\n{}more", (599, b"{}")),
        (b"HTTP/1.0 200 OK\r\n\r\n{}", (200, b"{}")),
    ],
)
def test_an_answer(tmp_path: Path, answer: bytes, expected: tuple[int, bytes]) -> None:
    """Its status may be one that HTTP does not know, and its length need not be given."""
    with answering(tmp_path / "s", answer) as address, ask_server(address, "GET", "/", 5.0) as (status, body):
        assert (status, body.read()) == expected


@pytest.mark.parametrize("answer", [b"HTTP/1.0 xyz\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_not_http(tmp_path: Path, answer: bytes) -> None:
    """Another program is recognized by its first line."""
    with (
        answering(tmp_path / "s", answer) as address,
        pytest.raises(ConnectionError, match="it does not answer in HTTP"),
        ask_server(address, "GET", "/", 5.0),
    ):
        pass


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"],
)
def test_a_server_that_dies(tmp_path: Path, answer: bytes) -> None:
    """What has arrived is not taken for the answer."""
    with (
        answering(tmp_path / "s", answer) as address,
        pytest.raises(ConnectionError, match="it closed the connection"),
        ask_server(address, "GET", "/", 5.0) as (_, body),
    ):
        body.read()


def test_a_line_that_is_cut_off(tmp_path: Path) -> None:
    """Whole lines are given before."""
    with (
        answering(tmp_path / "s", b"HTTP/1.0 200 OK\r\n\r\n{}\n{") as address,
        ask_server(address, "GET", "/", 5.0) as (_, body),
    ):
        assert body.readline() == b"{}\n"
        with pytest.raises(ConnectionError, match="it closed the connection"):
            body.readline()


@pytest.mark.parametrize("address", ["tcp://localhost:abc", "tcp://[::1", f"tcp://{'a' * 64}:1"])
def test_an_invalid_address(address: str) -> None:
    """The error is of the kind that every other failure has."""
    with pytest.raises(ConnectionError), ask_server(address, "GET", "/", 5.0):
        pass
