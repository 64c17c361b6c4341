# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket and the admin socket, Unix sockets that only root can use, and a TCP socket for scrapes of metrics.

They are opened before everything else, so that Docker's calls wait during the start and do not fail.
"""

import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.systemd import take_sockets

_UCRED: Final = struct.Struct("=iII")
"""`struct ucred` (unix(7)): the IDs of process, user and group."""

_UNIX: Final = "unix://"

_ADMIN: Final = "admin"
"""The name of the admin socket's descriptor, as in the systemd unit."""

_ADMIN_DIRECTORY_MODE: Final = 0o700

_MODE: Final = 0o600
"""A client can run plugins as root."""

BACKLOG: Final = 1024
"""The kernel's queue of connections that have not been accepted. If it is full, dockerd's calls fail."""


def find_peer(connection: socket.socket) -> int:
    """Return the ID of the process at the other end of a Unix socket, 0 if it is not visible in this PID namespace.

    For a client, that is the process that called listen(2), which may be systemd (Linux `sock.c`, cred_to_ucred).
    """
    pid: int
    pid, _, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid


def is_peer_hidden(address: str) -> bool:
    """Return whether the process at a socket, such as the engine's, is not visible: it is outside of our PID namespace.

    False if it is not known, such as over TCP.
    """
    path = address.removeprefix(_UNIX)
    if path == address:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as sock, suppress(OSError):
        sock.connect(path)
        return find_peer(sock) == 0
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """The listening sockets of the daemon; `scrapes` is that for metrics, None if there is no address for it."""

    plugin: socket.socket
    admin: socket.socket
    scrapes: socket.socket | None


@contextmanager
def open_sockets(settings: Settings) -> Iterator[Sockets]:
    """Yield the sockets that systemd passed, and listen at the paths of the others; raises as the functions below.

    systemd names the admin socket `admin`. Any other name is that of the plugin socket: a unit need not give it one.
    """
    given = dict(take_sockets())
    admin = given.pop(_ADMIN, None)
    with ExitStack() as stack:
        plugin = next(iter(given.values()), None)
        plugin = plugin or stack.enter_context(listening(settings.socket))
        admin = admin or stack.enter_context(
            listening(settings.admin_path, option="--admin-socket", directory_mode=_ADMIN_DIRECTORY_MODE)
        )
        yield Sockets(plugin=plugin, admin=admin, scrapes=stack.enter_context(metrics_listener(settings)))


@contextmanager
def listening(path: Path, *, option: str = "--socket", directory_mode: int = 0o755) -> Iterator[socket.socket]:
    """Listen at `path`, replacing a socket that is no longer served; remove it at the end.

    `option`, which sets the path, is for errors. `directory_mode` is the mode of the directory if that does not exist.

    Raises:
        Refused: Another process serves the socket, or the file is not a socket.
        OSError: The path cannot be used.
    """
    sock = _listen(path, option, directory_mode)
    inode = _find_inode(path)
    try:
        yield sock
    finally:
        if inode is not None and _find_inode(path) == inode:  # it may be another process's by now
            path.unlink()
        sock.close()


@contextmanager
def metrics_listener(settings: Settings) -> Iterator[socket.socket | None]:
    """Listen at the address for metrics during the block; yield None if there is none.

    Raises:
        Refused: The address cannot be used.
    """
    if not settings.metrics_listen:
        yield None
        return
    with _listen_at(*parse_address(settings.metrics_listen)) as sock:
        yield sock


def parse_address(text: str) -> tuple[str, int]:
    """Return IP address and port of `ADDRESS:PORT`, an IPv6 address in brackets; raise `Refused` if it is not that."""
    try:
        url = urlsplit(f"//{text}")
        if url.netloc != text or url.port is None:
            raise ValueError(text)
        return str(ipaddress.ip_address(url.hostname or "")), url.port
    except ValueError as exc:
        raise Refused(f"{text!r} is not ADDRESS:PORT with an IP address, e.g. 127.0.0.1:9790") from exc


def _listen(path: Path, option: str, directory_mode: int) -> socket.socket:
    path.parent.mkdir(mode=directory_mode, parents=True, exist_ok=True)
    _clear(path, option)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(sock.fileno(), _MODE)  # the file's (Linux `unix_bind_bsd`); a umask would be that of plugins, too
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _find_inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


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


def _listen_at(host: str, port: int) -> socket.socket:
    """Listen at an address; at a loopback address, only for packets that come through the link `lo`.

    Without that, a container on a bridge with `route_localnet` (portmap sets it) can send packets to 127.0.0.1 of the
    host, as in CVE-2020-8558.
    """
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if ipaddress.ip_address(host).is_loopback:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            sock.bind((host, port))
            sock.listen()
        except OSError as exc:
            reason = os.strerror(exc.errno or 0)
            raise Refused(f"cannot listen at {host} port {port}: {reason}; set --metrics-listen") from exc
        stack.pop_all()
        return sock
