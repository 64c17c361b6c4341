# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests without a body to the daemon and the engine. To import `http.client` takes as long as all of `ls`."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Final
from urllib.parse import unquote, urlsplit

__all__ = ["Body", "ask_server"]

_PORTS: Final = {"http": 80, "tcp": 2375, "https": 443}
_CUT_OFF: Final = "it closed the connection"


class Body:
    """The body of an answer, which ends with the connection (HTTP 1.0).

    Its methods raise `ConnectionError` if it ends too early.

    Args:
        length: Its length in bytes; None if the headers do not have it.
    """

    def __init__(self, stream: IO[bytes], length: int | None) -> None:
        self._stream = stream
        self._length = length

    def read(self) -> bytes:
        """Return all of it."""
        content = self._stream.read(-1 if self._length is None else self._length)
        if len(content) < (self._length or 0):
            raise ConnectionError(_CUT_OFF)
        return content

    def readline(self) -> bytes:
        """Return the next line, empty at the end."""
        line = self._stream.readline()
        if line and not line.endswith(b"\n"):
            raise ConnectionError(_CUT_OFF)
        return line


@contextmanager
def ask_server(server: str, verb: str, target: str, limit_s: float | None) -> Iterator[tuple[int, Body]]:
    """Yield the status of an answer, and its body; `limit_s` is for each part of it, None stands for no limit.

    The server is `unix:///path`, `tcp://host:port`, `http://host:port` or `https://host:port`.

    Raises:
        OSError: The address is invalid, or there is no whole answer, or not one in HTTP.
    """
    with ExitStack() as stack:
        try:
            sock = stack.enter_context(_connect(server, limit_s))
        except ValueError as exc:  # of the address; a name's label may be too long
            raise ConnectionError(str(exc)) from exc
        sock.sendall(f"{verb} {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode("ascii"))
        stream = stack.enter_context(sock.makefile("rb"))
        protocol, _, rest = _header(stream).partition(b" ")
        if not protocol.startswith(b"HTTP/") or not rest[:3].isdigit():
            raise ConnectionError("it does not answer in HTTP")
        length = None
        while line := _header(stream).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
        yield int(rest[:3]), Body(stream, length)


def _header(stream: IO[bytes]) -> bytes:
    if line := stream.readline():
        return line
    raise ConnectionError(_CUT_OFF)


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
