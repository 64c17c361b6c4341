# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests without a body to the daemon and the engine. To import `http.client` takes as long as all of `ls`."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import IO, Final
from urllib.parse import unquote, urlsplit

__all__ = ["ask_server"]

_PORTS: Final = {"http": 80, "tcp": 2375, "https": 443}


@contextmanager
def ask_server(server: str, verb: str, target: str, limit_s: float | None) -> Iterator[tuple[int, IO[bytes]]]:
    """Yield the status of an answer, and its body, which ends with the connection (HTTP 1.0).

    Args:
        server: `unix:///path`, `tcp://host:port`, `http://host:port` or `https://host:port`.
        verb: E.g. `GET`.
        target: Path and query.
        limit_s: Time limit for each part of the answer; None stands for none.

    Raises:
        OSError: There is no answer, or not one in HTTP.
    """
    with _connect(server, limit_s) as sock:
        sock.sendall(f"{verb} {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode("ascii"))
        with sock.makefile("rb") as stream:
            protocol, _, rest = stream.readline().partition(b" ")
            if not protocol.startswith(b"HTTP/"):
                raise ConnectionError("it does not answer in HTTP")
            while stream.readline().strip():
                pass  # a header
            yield HTTPStatus(int(rest[:3])), stream


@contextmanager
def _connect(server: str, limit_s: float | None) -> Iterator[socket.socket]:
    found = urlsplit(server)
    if found.scheme == "unix":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(limit_s)
            sock.connect(unquote(found.path))
            yield sock
        return
    host = found.hostname or ""
    with socket.create_connection((host, found.port or _PORTS[found.scheme]), limit_s) as plain:
        if found.scheme != "https":
            yield plain
            return
        import ssl  # noqa: PLC0415 - slow, and rarely needed

        with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as wrapped:
            yield wrapped
