# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Network namespaces: create, mount at a path, enter, remove.

`enter` and `ensure_namespace` permanently change the namespace of the calling thread, so `Host` runs them in threads of
their own. Python 3.11 has neither `os.unshare` nor `os.setns`, so this module uses the C library. pyroute2's functions
fork, and create a namespace when they should only open one.
"""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EEXIST, EINVAL, ENOENT
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import KernelError, NamespaceMissing, attempt
from cnm_bridge.system.kernel.sysctl import has_ipv6, write_ipv6

_CURRENT: Final = "/proc/thread-self/ns/net"
# sched.h, nsfs.h, sys/mount.h, sockios.h, if.h
_CLONE_NEWNET: Final = 0x40000000
_NS_GET_NSTYPE: Final = 0xB703
_MS_BIND: Final = 0x1000
_MNT_DETACH: Final = 2
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1
_IFREQ_FLAGS: Final = struct.Struct("16sh22x")
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceId:
    """The identity of a network namespace, unique among those that exist at the same time."""

    device: int
    inode: int


def namespace_id(fd: int) -> NamespaceId:
    """Return the identity of an open namespace."""
    found = os.fstat(fd)
    return NamespaceId(device=found.st_dev, inode=found.st_ino)


@contextmanager
def current_namespace() -> Iterator[int]:
    """Open the namespace of the calling thread and yield its descriptor."""
    fd = os.open(_CURRENT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_namespace(path: Path) -> Iterator[int]:
    """Open the namespace mounted at `path` and yield its descriptor; raise `NamespaceMissing` if there is none."""
    fd = _find_namespace(path)
    if fd is None:
        raise NamespaceMissing("enter namespace", str(path))
    try:
        yield fd
    finally:
        os.close(fd)


def is_namespace(path: Path) -> bool:
    """Return whether a live network namespace is mounted at `path`; costs three system calls."""
    fd = _find_namespace(path)
    if fd is None:
        return False
    os.close(fd)
    return True


def enter(fd: int, *, host: NamespaceId) -> None:
    """Move the calling thread into an open namespace; raise `KernelError` if that is the host's."""
    with attempt("enter", "namespace"):
        _call("setns", fd, _CLONE_NEWNET)
    _refuse_host_namespace(host)


def ensure_namespace(path: Path, *, host: NamespaceId) -> None:
    """Mount a new namespace at `path` if none is mounted there, and leave the calling thread in the new one.

    `lo` is up, and duplicate address detection is off for links that are created in it or moved to it. The mount is
    the last step, so a namespace at `path` is always complete. A plain file left by an interrupted call is mounted
    over. Missing parent directories are created with access for root only. After a failure nothing is at `path`.
    """
    if is_namespace(path):
        return
    with attempt("make namespace", str(path)):
        _call("unshare", _CLONE_NEWNET)
        _refuse_host_namespace(host)
        _bring_lo_up()
        _disable_dad()
        _mount(_CURRENT, path)


def make_mount_point(path: Path) -> None:
    """Ensure that there is a file to mount a namespace on; missing parent directories are made for root only."""
    if not path.parent.is_dir():
        for directory in reversed(path.parents):
            directory.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)


def pin_namespace(fd: int, path: Path) -> None:
    """Mount an open namespace at `path` as well, so that it lives on when its other mounts and processes are gone.

    Nothing happens if that namespace is mounted there already; another one raises `FileExistsError`. After any other
    failure nothing is at `path`.
    """
    mounted = _find_namespace(path)
    if mounted is None:
        with attempt("pin namespace", str(path)):
            _mount(f"/proc/self/fd/{fd}", path)
        return
    try:
        if namespace_id(mounted) != namespace_id(fd):
            raise FileExistsError(EEXIST, "another namespace is mounted there", str(path))
    finally:
        os.close(mounted)


def mount_instead(source: Path, path: Path) -> None:
    """Mount the namespace at `source` at `path`, instead of what is mounted there; errors as in `open_namespace`."""
    with open_namespace(source) as fd:
        try:
            pin_namespace(fd, path)
        except FileExistsError:
            remove_namespace(path)
            pin_namespace(fd, path)


def remove_namespace(*paths: Path) -> None:
    """Unmount the namespaces at `paths` and remove the files; they need not exist.

    The kernel destroys a namespace and its virtual links asynchronously, once it is unused.
    """
    for path in paths:
        with attempt("remove namespace", str(path)):
            try:
                while True:  # another mount may be below this one
                    _call("umount2", os.fsencode(path), _MNT_DETACH)
            except OSError as exc:
                if exc.errno not in {EINVAL, ENOENT}:  # EINVAL: not, or no longer, a mount point
                    raise
            path.unlink(missing_ok=True)


def _mount(source: str, path: Path) -> None:
    """Mount the namespace that `source` leads to on a file."""
    make_mount_point(path)
    try:
        _call("mount", os.fsencode(source), os.fsencode(path), None, ctypes.c_ulong(_MS_BIND), None)
    except OSError:
        path.unlink()
        raise


def _find_namespace(path: Path) -> int | None:
    try:
        if not path.is_file():  # opening a device can have effects: a watchdog starts
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        # ioctl_nsfs(2); a file of any other kind does not know this request
        if fcntl.ioctl(fd, _NS_GET_NSTYPE) == _CLONE_NEWNET:
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _refuse_host_namespace(host: NamespaceId) -> None:
    with current_namespace() as fd:
        if namespace_id(fd) == host:
            raise KernelError("work in", "namespace", "it is the host's")


def _bring_lo_up() -> None:
    # an ioctl costs a fifth of a netlink socket with one request
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(b"lo", _IFF_UP))


def _disable_dad() -> None:
    """Switch off duplicate address detection, for which ptp and macvlan would wait 1.5 to 2 seconds.

    The kernel uses the larger of `all` and the link's own value, which starts as `default`. A new namespace may inherit
    both from the host (net.core.devconf_inherit_init_net).
    """
    if has_ipv6():
        for scope in ("default", "all"):
            write_ipv6(scope, "accept_dad", 0)


def _call(function: str, *arguments: int | bytes | ctypes.c_ulong | None) -> None:
    """Call a function of the C library that returns 0 or sets errno."""
    if getattr(_libc, function)(*arguments) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
