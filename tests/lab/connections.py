# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Connections to the lab's Unix sockets whose other end sees a process of the lab.

The kernel tells a server who connected (SO_PEERCRED), as a process ID of the server's PID namespace. To a daemon in the
lab a test has none, unlike dockerd. Then the daemon does not rely on the processes that it sees any more, and moves
links that it would otherwise make in the sandbox. So a process of the lab makes the connection: `connector.py`.
"""

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Final

from tests.lab.errors import LabError
from tests.lab.namespaces import Namespaces

_SCRIPT: Final = str(Path(__file__).with_name("connector.py"))
_REPLY_BYTES: Final = 16


class Connections:
    """Makes connections, from any thread."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._lock = threading.Lock()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = namespaces.popen((sys.executable, "-I", "-S", _SCRIPT), stdin=theirs.fileno())

    def connect(self, path: str) -> socket.socket:
        """Connect to a server.

        Raises:
            OSError: As `socket.connect`.
            LabError: The lab is not up any more.
        """
        with self._lock:
            self._orders.send(path.encode())
            reply, descriptors, _, _ = socket.recv_fds(self._orders, _REPLY_BYTES, 1)
        if not reply:
            raise LabError("the lab's process that connects has ended")
        if error := int(reply):
            raise OSError(error, os.strerror(error), path)
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        """End the process; connections stay open."""
        self._orders.close()
        self._process.wait()
