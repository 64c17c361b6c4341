# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket: a Unix socket that only root can use.

It is opened before everything else, so that Docker's calls wait during the start and do not fail.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cnm_bridge.errors import Refused
from cnm_bridge.systemd import take_sockets

__all__ = ["BACKLOG", "listening", "plugin_socket"]

_UMASK: Final = 0o177  # srw-------: a client can run plugins as root
BACKLOG: Final = 1024
"""The kernel's queue of connections that have not been accepted. If it is full, dockerd's calls fail."""


@contextmanager
def plugin_socket(path: Path) -> Iterator[socket.socket]:
    """Yield the socket that systemd passed, or listen at `path`; errors as in `listening`."""
    given = take_sockets()
    if given:
        yield given[0]
    else:
        with listening(path) as sock:
            yield sock


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Listen at `path`, replacing a socket that is no longer served; remove it at the end.

    Raises:
        Refused: Another process serves the socket, or the file is not a socket.
        OSError: The path cannot be used.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _clear(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        umask = os.umask(_UMASK)
        try:
            sock.bind(str(path))
        finally:
            os.umask(umask)
        inode = path.stat().st_ino
        sock.listen(BACKLOG)
        try:
            yield sock
        finally:
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()


def _clear(path: Path) -> None:
    """Remove a socket that a killed process left behind."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"{path} exists and is not a socket; remove it, or set --socket to another path")
    served = f"{path} is served by another process; stop that process, or set --socket to another path"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError:  # its backlog is full
            raise Refused(served) from None
        else:
            raise Refused(served)
