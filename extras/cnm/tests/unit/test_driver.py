# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Calls of a driver: what counts as an answer."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cni_plugin import CallError
from cnm_plugin.driver import Driver, DriverAddress


@contextmanager
def answering(status: int, content: bytes) -> Iterator[tuple[Driver, list[tuple[str, bytes]]]]:
    """A driver at a TCP port that gives one answer to everything; gives also what it received."""
    received: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield Driver("other", DriverAddress(host="127.0.0.1", port=server.server_port)), received
        finally:
            server.shutdown()
            thread.join()


def test_a_call() -> None:
    """It is a POST with a JSON body, as dockerd sends it."""
    with answering(200, b'{"Value": {}}') as (driver, received):
        assert driver.call("Join", {"NetworkID": "n"}) == {"Value": {}}
        assert received == [("/NetworkDriver.Join", b'{"NetworkID":"n"}\n')]
        driver.call("GetCapabilities", None)
        assert received[1] == ("/NetworkDriver.GetCapabilities", b"")


@pytest.mark.parametrize("content", [b"{}", b"null", b'{"Err": ""}'])
def test_empty_answers(content: bytes) -> None:
    """They are success."""
    with answering(200, content) as (driver, _):
        driver.call("Leave", {})


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (200, b'{"Err": "banana"}', "banana"),
        (500, b'{"Err": "banana"}', "banana"),
        (500, b"banana\n", "banana"),
        (503, b"", "HTTP status 503"),
        (204, b"{}", "HTTP status 204"),
        (200, b"", "no JSON object"),
        (200, b"[]", "no JSON object"),
        (404, b"404 page not found", "404 page not found"),
    ],
)
def test_refusals(status: int, content: bytes, reason: str) -> None:
    """Only status 200 with a JSON object and without `Err` is success, as for dockerd."""
    with answering(status, content) as (driver, _), pytest.raises(CallError, match=reason) as failed:
        driver.call("Join", {})
    assert failed.value.msg.startswith("driver other refuses NetworkDriver.Join: ")
    assert failed.value.code == 100


def test_optional_methods() -> None:
    """A driver need not have them, but it may fail them."""
    with answering(404, b"404 page not found") as (driver, _):
        assert driver.call("ProgramExternalConnectivity", {}, optional=True) == {}
    with answering(500, b"banana") as (driver, _), pytest.raises(CallError, match="banana"):
        driver.call("ProgramExternalConnectivity", {}, optional=True)


def test_activation() -> None:
    """A plugin of another kind is not a driver."""
    with answering(200, b'{"Implements": ["VolumeDriver"]}') as (driver, _):
        with pytest.raises(CallError, match="is not a network driver") as failed:
            driver.activate()
        assert failed.value.code == 50


def test_no_answer() -> None:
    """It is an error that may pass."""
    with answering(200, b"{}") as (driver, _):
        pass
    with pytest.raises(CallError, match=r"driver other at tcp://127\.0\.0\.1:[0-9]+ does not answer") as failed:
        driver.call("Join", {})
    assert failed.value.code == 11
