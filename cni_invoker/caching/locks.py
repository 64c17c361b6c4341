# SPDX-License-Identifier: Apache-2.0
"""Keeps the operations on one cache directory apart, of all processes and of all tasks.

CNI SPEC §2, "Lifecycle & Ordering": a container is used by one operation at a time; GC has a whole network. The file
`lock` has a byte for each container and each network, and an operation holds the locks of its bytes (F_OFD_SETLK,
fcntl(2)). The end of a process releases them. An operation on a container first kills the plugins that a killed process
has left running for it, because an ADD must not continue while it is being undone.
"""

import asyncio
import fcntl
import os
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from cni_invoker.documents.checks import check_network_name
from cni_invoker.errors import CacheError, NetworkBusy, PluginStillRuns
from cni_invoker.execution.running_plugins import find_abandoned, find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.messages import log_event
from cni_invoker.waiting import run_in_thread

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials

_PAUSE_S: Final = 0.02
"""Between two attempts to get a lock; plugins take some tens of milliseconds."""

_KILL_LIMIT_S: Final = 10.0
"""A killed process ends immediately, unless it hangs in the kernel."""

_OFFSETS: Final = (1 << 63) - 1
_FLOCK: Final = "hhqqi4x"
"""`struct flock`: type, whence, start, length, and a process ID, which these locks do not have."""


class OperationLocks:
    """The locks of one cache directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "lock"
        self.running_dir = directory / "running"

    @asynccontextmanager
    async def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AsyncIterator[None]:
        """Run the body while no other operation uses a container or, with None, a network.

        The body has not run if an error is raised.

        Raises:
            NetworkBusy: Other operations did not end in time.
            PluginStillRuns: A plugin of a killed process cannot be killed.
            CacheError: The directory cannot be used.
        """
        check_network_name(network)
        deadline = time.monotonic() + wait_s
        with reported("lock", self._file):
            make_durably(self._directory)
            file = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        # Always in this order: no deadlock.
        wanted = [(fcntl.F_WRLCK if container_id is None else fcntl.F_RDLCK, _offset(network, "/"))]
        if container_id is not None:
            wanted.append((fcntl.F_WRLCK, _offset(container_id)))
        try:
            for how, start in wanted:
                while not _take_bytes(file, how, start):
                    if time.monotonic() > deadline:
                        raise NetworkBusy(network, waited_s=wait_s)
                    await asyncio.sleep(_PAUSE_S)
            if container_id is not None:
                with reported("read", self.running_dir):
                    await _end_plugins(self.running_dir, container_id)
            yield
        finally:
            _take_bytes(file, fcntl.F_UNLCK, 0, 0)  # a child that was forked meanwhile shares the locks
            os.close(file)


def _offset(name: str, prefix: str = "") -> int:
    """Return the byte of a container or, with a prefix that no container ID has, of a network."""
    import hashlib  # noqa: PLC0415  # it takes longer to load than most modules

    return int.from_bytes(hashlib.sha256(f"{prefix}{name}".encode()).digest()[:8], "big") % _OFFSETS


def _take_bytes(file: int, how: int, start: int, length: int = 1) -> bool:
    """Lock bytes of a file, or unlock them; with length 0, all from `start` on."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, how, os.SEEK_SET, start, length, 0))
    except BlockingIOError:
        return False
    return True


async def _end_plugins(running_dir: Path, container_id: str) -> None:
    """Kill the plugins that a killed process has left behind.

    Raises:
        PluginStillRuns: A plugin cannot be killed.
    """
    if not find_abandoned(running_dir, [container_id]):
        return
    ended = await run_in_thread(lambda: kill_orphaned_plugins(running_dir, [container_id], limit_s=_KILL_LIMIT_S))
    if ended:
        log_event(__name__, "plugins.ended", container_id=container_id, pids=", ".join(map(str, ended)))
    running = await run_in_thread(lambda: find_orphaned_plugins(running_dir, [container_id]))  # they may hang
    if running:
        raise PluginStillRuns(container_id, [str(plugin) for plugin in running])


def make_durably(directory: Path) -> None:
    """Create a directory and its missing parents; each is on disk before the next one is created."""
    if not directory.is_dir():
        make_durably(directory.parent)
        directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def reported(doing: str, path: Path) -> Iterator[None]:
    """Turn the body's `OSError` into a `CacheError` that says what could not be done with the path."""
    try:
        yield
    except OSError as exc:
        raise CacheError(path, f"cannot {doing} it: {exc.strerror}") from exc
