# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket and the admin socket: Unix sockets that only root can use.

They are opened before everything else, so that Docker's calls wait during the start and do not fail.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.errors import Refused
from cnm_bridge.process.systemd import take_sockets
from cnm_bridge.settings import Settings

__all__ = ["BACKLOG", "Sockets", "listening", "open_sockets"]

_ADMIN: Final = "admin"
"""The name of the admin socket's descriptor, as in the systemd unit."""

_UMASK: Final = 0o177  # srw-------: a client can run plugins as root
BACKLOG: Final = 1024
"""The kernel's queue of connections that have not been accepted. If it is full, dockerd's calls fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """The two listening sockets of the daemon.

    Attributes:
        plugin: Docker's calls.
        admin: The operator's requests.
    """

    plugin: socket.socket
    admin: socket.socket


@contextmanager
def open_sockets(settings: Settings) -> Iterator[Sockets]:
    """Yield the sockets that systemd passed, and listen at the paths of the others; errors as in `listening`.

    systemd names the admin socket `admin`. Any other name is that of the plugin socket, because units of earlier
    versions gave it none.
    """
    given = dict(take_sockets())
    admin = given.pop(_ADMIN, None)
    with ExitStack() as stack:
        plugin = next(iter(given.values()), None)
        yield Sockets(
            plugin=plugin or stack.enter_context(listening(settings.socket, option="--socket")),
            admin=admin
            or stack.enter_context(listening(settings.admin_path, option="--admin-socket", directory_mode=0o700)),
        )


@contextmanager
def listening(path: Path, *, option: str = "--socket", directory_mode: int = 0o755) -> Iterator[socket.socket]:
    """Listen at `path`, replacing a socket that is no longer served; remove it at the end.

    Args:
        path: The socket's file.
        option: The option that sets it, for errors.
        directory_mode: The mode of its directory, if that does not exist.

    Raises:
        Refused: Another process serves the socket, or the file is not a socket.
        OSError: The path cannot be used.
    """
    path.parent.mkdir(mode=directory_mode, parents=True, exist_ok=True)
    _clear(path, option)
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


def _clear(path: Path, option: str) -> None:
    """Remove a socket that a killed process left behind."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Refused(f"{path} exists and is not a socket; remove it, or set {option} to another path")
    served = f"{path} is served by another process; stop that process, or set {option} to another path"
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
