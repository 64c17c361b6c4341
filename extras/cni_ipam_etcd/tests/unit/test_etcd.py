# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a client of etcd says about endpoints that do not answer, and when it says it."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from cni_ipam_etcd.etcd import NO_ANSWER, Etcd
from cni_ipam_etcd.settings import Settings
from cni_plugin import CallError

LIMIT_S = 0.5


def ask(*endpoints: str) -> CallError:
    """Ask etcd at these endpoints; return the error."""
    settings = Settings.of_section({"etcd": {"endpoints": [*endpoints], "timeout": LIMIT_S}})
    etcd = Etcd(settings)
    try:
        with pytest.raises(CallError) as failed:
            etcd.read_range("a", "b")
    finally:
        etcd.close()
    assert failed.value.code == NO_ANSWER
    return failed.value


@pytest.fixture(name="port")
def closing_port() -> Iterator[int]:
    """A port whose connections are closed at the first byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_closed_connection(port: int) -> None:
    """A member that ends during the handshake is asked again until the limit; its certificate is not the reason."""
    began = time.monotonic()
    error = ask(f"https://127.0.0.1:{port}")
    assert time.monotonic() - began >= LIMIT_S
    assert "it closes the connection: it is shutting down, or does not accept the client's certificate" in error.details


@pytest.mark.parametrize("endpoints", [["http://etcd.example"], ["http://etcd.example", "http://127.0.0.1:{port}"]])
def test_a_name_that_is_not_resolved(monkeypatch: pytest.MonkeyPatch, port: int, endpoints: list[str]) -> None:
    """The resolver may take longer than the limit of the request; the error names the endpoint."""
    real, answers = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host: str, *given: object, **more: object) -> object:
        if host == "etcd.example":
            answers.wait()
        return real(host, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    began = time.monotonic()
    error = ask(*(one.format(port=port) for one in endpoints))
    took_s = time.monotonic() - began
    answers.set()
    assert took_s < 10 * LIMIT_S
    assert "http://etcd.example: its name is not resolved within" in error.details


def test_a_name_that_is_not_known() -> None:
    """The resolver's reason is in the error."""
    assert "http://nothing.invalid: its name is not known: " in ask("http://nothing.invalid").details


class _Member(http.server.BaseHTTPRequestHandler):
    """Answers as a member without a leader does, or a byte at a time."""

    is_slow = False

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        content = b'{"error": "context deadline exceeded", "code": 2}'
        self.send_response(500)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for number in range(len(content)):
            if self.is_slow:
                time.sleep(LIMIT_S / 5)
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has given up
                self.wfile.write(content[number : number + 1])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def member(*, is_slow: bool = False) -> Iterator[str]:
    """Give the URL of such a member."""
    kind = type("Kind", (_Member,), {"is_slow": is_slow})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_member_without_a_leader(port: int) -> None:
    """It is passed over, and the error is that etcd does not answer: nothing was refused."""
    with member() as url:
        error = ask(url, f"http://127.0.0.1:{port}")
    assert f"{url}: context deadline exceeded" in error.details


def test_an_answer_that_comes_byte_by_byte() -> None:
    """The limit is that of the whole answer, not of each byte."""
    with member(is_slow=True) as url:
        began = time.monotonic()
        error = ask(url)
        took_s = time.monotonic() - began
    assert "no answer in 0.5 s: it hangs" in error.details
    assert took_s < 5 * LIMIT_S  # all of it would take ten times the limit
