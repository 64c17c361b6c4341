# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One JSON request to an HTTP server on a Unix socket: dockerd's API, the daemon's plugin socket."""

import http.client
import socket
from collections.abc import Callable
from pathlib import Path

from cni_invoker.documents.jsontypes import JsonValue, parse_json, render_json


def request(
    server: Path | Callable[[], socket.socket],
    method: str,
    target: str,
    body: JsonValue = None,
    *,
    timeout_s: float = 10.0,
) -> tuple[int, JsonValue]:
    """Return the status and the JSON document that a server answers; None if it is not JSON. See `send`."""
    status, data = send(server, method, target, body, timeout_s=timeout_s)
    is_json = data.lstrip()[:1] in (b"{", b"[")  # `OK` from /_ping is not
    return status, parse_json(data) if is_json else None


def send(
    server: Path | Callable[[], socket.socket],
    method: str,
    target: str,
    body: JsonValue = None,
    *,
    timeout_s: float = 10.0,
) -> tuple[int, bytes]:
    """Return the status and the bytes that a server answers.

    Args:
        server: Its socket's path, or what connects to it.
        method: `GET`, for example.
        target: The path of the request.
        body: A document to send.
        timeout_s: Time limit of each step, in seconds.

    Raises:
        OSError: No server listens there, or it does not answer in time.
        http.client.HTTPException: The server does not use HTTP.
    """
    connection = _UnixConnection(server, timeout_s)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, target, None if body is None else render_json(body), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def is_answering(path: Path, method: str, target: str) -> bool:
    """Return whether a request is answered with 200 now."""
    try:
        status, _ = request(path, method, target)
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, server: Path | Callable[[], socket.socket], timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._server = server

    def connect(self) -> None:
        if not isinstance(self._server, Path):
            self.sock = self._server()
            self.sock.settimeout(self.timeout)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._server))
