# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The client of the admin socket, at real servers: each failure says what to do; half an answer is none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, render_json
from cnm_bridge import __version__
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import ExitStatus
from cnm_bridge.operator.cli.http_client import ask_server

OLDER: Final[JsonObject] = {"error": "cni-bridge 0.0.1 has no GET /v1/x", "kind": "unknownRequest", "version": "0.0.1"}


@contextmanager
def answering(path: Path, status: int, body: bytes) -> Iterator[list[str]]:
    """Answer every request on a socket; yield the list of the requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return "client"

    with UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield requests
        finally:
            server.shutdown()
            thread.join()


def failure(path: Path, limit_s: float = 5.0) -> DaemonError:
    """Return the error of a request."""
    with pytest.raises(DaemonError) as caught:
        AdminClient(path, limit_s).get("x")
    return caught.value


def test_parameters_are_quoted(tmp_path: Path) -> None:
    """A name is one part of the path, whatever it contains."""
    with answering(tmp_path / "s", 200, b'{"a": 1}') as requests:
        assert AdminClient(tmp_path / "s").get("endpoints", "../a b", full="1") == {"a": 1}
    assert requests == ["/v1/endpoints/..%2Fa%20b?full=1"]


def test_lines_are_yielded_one_by_one(tmp_path: Path) -> None:
    """Each is a document."""
    with answering(tmp_path / "s", 200, b'{"a": 1}\n{"a": 2}\n'):
        assert list(AdminClient(tmp_path / "s").lines("x")) == [{"a": 1}, {"a": 2}]


def test_no_daemon(tmp_path: Path) -> None:
    """The error names the socket, the option, and the command that works without a daemon."""
    error = failure(tmp_path / "none.sock")
    assert error.exit_status is ExitStatus.NO_DAEMON
    for part in (str(tmp_path / "none.sock"), "--admin-socket", "cni-bridge state export"):
        assert part in str(error)


def test_a_daemon_that_does_not_start(tmp_path: Path) -> None:
    """While systemd holds its socket open, no process answers; the error says where the reason is."""
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "s"))
        held.listen()
        error = failure(tmp_path / "s", limit_s=0.05)
    assert "no answer on" in str(error)
    assert "journalctl -u cni-bridge" in str(error)
    assert error.exit_status is ExitStatus.NO_DAEMON


def test_an_older_daemon(tmp_path: Path) -> None:
    """The error has both versions, and says what to do."""
    with answering(tmp_path / "s", 404, render_json(OLDER)):
        error = failure(tmp_path / "s")
    assert error.exit_status is ExitStatus.NO_DAEMON
    for part in ("0.0.1", __version__, "systemctl restart cni-bridge"):
        assert part in str(error)


@pytest.mark.parametrize(
    ("kind", "exit_status"),
    [
        ("notFound", ExitStatus.USAGE),
        ("badRequest", ExitStatus.USAGE),
        ("refused", ExitStatus.FINDINGS),
        ("internal", ExitStatus.NO_DAEMON),
    ],
)
def test_an_error_of_the_daemon(tmp_path: Path, kind: str, exit_status: ExitStatus) -> None:
    """Its text is that of the command."""
    body = render_json({"error": "no such thing", "kind": kind, "version": "1"})
    with answering(tmp_path / "s", 409, body):
        error = failure(tmp_path / "s")
    assert (str(error), error.exit_status) == ("no such thing", exit_status)


@pytest.mark.parametrize(("status", "body"), [(200, b"OK"), (200, b"[]"), (404, b"{}"), (500, b"<html>")])
def test_another_program(tmp_path: Path, status: int, body: bytes) -> None:
    """A server that is not the daemon is recognized."""
    with answering(tmp_path / "s", status, body):
        error = failure(tmp_path / "s")
    assert error.exit_status is ExitStatus.NO_DAEMON
    assert "another program answers" in str(error)


@contextmanager
def answering_once(path: Path, answer: bytes) -> Iterator[str]:
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
    with answering_once(tmp_path / "s", answer) as address, ask_server(address, "GET", "/", 5.0) as (status, body):
        assert (status, body.read()) == expected


@pytest.mark.parametrize("answer", [b"HTTP/1.0 xyz\r\n\r\n", b"SSH-2.0-x\r\n"])
def test_not_http(tmp_path: Path, answer: bytes) -> None:
    """Another program is recognized by its first line."""
    with (
        answering_once(tmp_path / "s", answer) as address,
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
        answering_once(tmp_path / "s", answer) as address,
        pytest.raises(ConnectionError, match="it closed the connection"),
        ask_server(address, "GET", "/", 5.0) as (_, body),
    ):
        body.read()


def test_a_line_that_is_cut_off(tmp_path: Path) -> None:
    """Whole lines are given before."""
    with (
        answering_once(tmp_path / "s", b"HTTP/1.0 200 OK\r\n\r\n{}\n{") as address,
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
