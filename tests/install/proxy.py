# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A proxy for HTTP that listens in the network namespace of a machine and connects from that of the test.

So a machine that has no network of its own reaches the mirrors of Debian and PyPI through the clients' settings, as
behind a company's proxy.
"""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from cnm_bridge.system.kernel.netns import current_namespace, enter, namespace_id

_PORT: Final = 3128
_HEAD_LIMIT: Final = 65536
_CHUNK: Final = 65536


class Proxy:
    """Listens on 127.0.0.1 in a network namespace until it is closed."""

    url: Final = f"http://127.0.0.1:{_PORT}"

    def __init__(self, namespace: Path) -> None:
        self._listener = _listen_in(namespace)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # wakes the thread that accepts
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=_serve, args=(client,), daemon=True).start()


def _listen_in(namespace: Path) -> socket.socket:
    """Return a listening socket of a namespace; a thread of its own makes it, because it stays in the namespace."""
    made: list[socket.socket] = []

    def listen() -> None:
        with current_namespace() as host:
            own = namespace_id(host)
        fd = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter(fd, host=own)
            made.append(socket.create_server(("127.0.0.1", _PORT)))
        finally:
            os.close(fd)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    return made[0]


def _serve(client: socket.socket) -> None:
    """Connect a client to the host that its first request names; further ones on the connection go to the same host."""
    with client, suppress(OSError, ValueError):
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _HEAD_LIMIT:
            received = client.recv(_CHUNK)
            if not received:
                return
            head += received
        verb, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        url = urlsplit(f"//{target}" if verb == "CONNECT" else target)
        with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as server:
            server.settimeout(None)
            if verb == "CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                server.sendall(head)  # servers accept the whole address in a request (RFC 9112, 3.2.2)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
