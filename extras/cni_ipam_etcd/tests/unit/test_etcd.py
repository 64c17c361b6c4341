# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a client of etcd says about endpoints that do not answer, and when it says it."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cni_invoker.plugin import CallError
from cni_ipam_etcd.etcd import NO_ANSWER, Etcd
from cni_ipam_etcd.settings import Settings

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
