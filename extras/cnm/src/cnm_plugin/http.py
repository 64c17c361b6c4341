# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One POST over HTTP/1.0, on a connection of its own (RFC 1945).

The answer ends where the connection ends, or after `Content-Length`; it is never chunked. This is so little
that `http.client` is not needed, whose import takes longer than all calls of an ADD.
"""

from socket import socket
from typing import Final

__all__ = ["post"]

_HEADERS: Final = "Accept: application/vnd.docker.plugins.v1.2+json\r\nHost: plugin.moby.localhost\r\n"
_LONGEST_LINE: Final = 65536
_LONGEST_BODY: Final = 16 << 20


def post(connection: socket, path: str, body: bytes) -> tuple[int, bytes]:
    """Send a body, and return the status and the body of the answer.

    Args:
        connection: A connection, on which nothing was sent before and nothing can be sent after.
        path: The path, which needs no quoting.
        body: The body.

    Raises:
        OSError: The connection fails, or what comes is not a complete answer.
    """
    connection.sendall(f"POST {path} HTTP/1.0\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body)
    with connection.makefile("rb") as answer:
        version, _, status = answer.readline(_LONGEST_LINE).decode("latin-1").partition(" ")
        code = status[:3]
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise ConnectionError(f"the answer is not HTTP: {version[:40]!r}" if version else "no answer")
        length = None
        while line := (header := answer.readline(_LONGEST_LINE)).rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            if name.lower() == "transfer-encoding":
                raise ConnectionError(f"the answer to an HTTP/1.0 request has the transfer encoding {value.strip()}")
            if name.lower() == "content-length" and value.strip().isdecimal():
                length = int(value)
        if not header:
            raise ConnectionError("the answer ends in its headers")
        content = answer.read(_LONGEST_BODY if length is None else min(length, _LONGEST_BODY))
    if length is not None and len(content) < length:
        raise ConnectionError(f"the answer ends after {len(content)} of {length} bytes")
    return int(code), content
