# SPDX-License-Identifier: Apache-2.0
"""Keeps operations apart: the tasks of one cached runtime, and processes that share a cache directory.

CNI SPEC §2, "Lifecycle & Ordering": a container is used by one operation at a time; GC has a whole network. For
processes, the directory `locks` has a file per network and, while a container is in use, a file per container. The end
of a process releases its locks, but leaves the container's file: so the next process sees that work was interrupted,
and first kills the plugin, because an ADD must not continue while it is being undone.

A DEL needs no free inode: if no file can be created, it locks the whole directory instead.
"""

import asyncio
import errno
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from cni_invoker.caching.cache import AttachmentCache
from cni_invoker.documents.attachment import AttachmentKey
from cni_invoker.documents.checks import check_network_name
from cni_invoker.errors import AttachmentExists, CacheError, NetworkBusy, PluginStillRuns
from cni_invoker.execution.running_plugins import find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.locks import TaskLocks, release_file_lock, take_file_lock
from cni_invoker.messages import log_event
from cni_invoker.waiting import run_in_thread

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials
_NAME_BYTES: Final = 255

_PAUSE_S: Final = 0.05
"""Between two attempts to get a lock; plugins take some tens of milliseconds."""

_KILL_LIMIT_S: Final = 10.0
"""A killed process ends immediately, unless it hangs in the kernel."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

_Take = Callable[[Path, int], Awaitable[tuple[int, bool]]]
"""Returns a descriptor that holds the lock of a file or directory, and whether the file was created."""


class ProcessLocks:
    """The locks of one cache directory; several processes may use it, and tasks of one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = directory / "locks"
        self.running_dir = directory / "running"

    def _network_file(self, network: str) -> Path:
        # No network can have such a name, and it is never too long.
        too_long = len(network.encode()) > _NAME_BYTES
        return self._files / (f"@@{_digest(network)}" if too_long else network)

    @asynccontextmanager
    async def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AsyncIterator[None]:
        """Run the body while no other process uses a container or, with None, a network.

        The body has not run if an error is raised.

        Raises:
            NetworkBusy: Other processes did not end in time.
            PluginStillRuns: A plugin of a killed process cannot be killed.
            CacheError: The directory cannot be used.
        """
        check_network_name(network)
        deadline = time.monotonic() + wait_s

        async def take(path: Path, how: int) -> tuple[int, bool]:
            while True:
                taken = _try_take(path, how)
                if taken is not None:
                    return taken
                if time.monotonic() > deadline:
                    raise NetworkBusy(network, waited_s=wait_s)
                await asyncio.sleep(_PAUSE_S)

        container = None if container_id is None else self._container_file(container_id)
        with reported("lock", self._files):
            make_durably(self._directory)
            try:
                held, interrupted = await self._lock(network, container, take)
            except OSError as exc:
                if exc.errno not in _NO_ROOM:
                    raise
                held, interrupted = await self._lock_everything(container, take)
        with held:
            if container_id is not None and container is not None:
                if interrupted:
                    await run_in_thread(lambda: _end_plugins(self.running_dir, container_id))
                held.callback(_unlink, container)
            yield

    async def _lock(self, network: str, container: Path | None, take: _Take) -> tuple[ExitStack, bool]:
        """Lock a container or a network; return whether earlier work on the container was interrupted."""
        interrupted = False
        with ExitStack() as held:
            # Always in this order, to prevent deadlock.
            held.callback(release_file_lock, (await take(self._directory, fcntl.LOCK_SH))[0])
            make_durably(self._files)
            how = fcntl.LOCK_EX if container is None else fcntl.LOCK_SH
            held.callback(release_file_lock, (await take(self._network_file(network), how))[0])
            if container is not None:
                descriptor, made = await take(container, fcntl.LOCK_EX)
                held.callback(release_file_lock, descriptor)
                interrupted = not made
            return held.pop_all(), interrupted

    async def _lock_everything(self, container: Path | None, take: _Take) -> tuple[ExitStack, bool]:
        """Lock the whole directory, because there is no room for a file."""
        with ExitStack() as held:
            held.callback(release_file_lock, (await take(self._directory, fcntl.LOCK_EX))[0])
            return held.pop_all(), container is not None and _is_there(container)

    def _container_file(self, container_id: str) -> Path:
        # No network can have such a name, and it is never too long.
        return self._files / f"@{_digest(container_id)}"


def _digest(name: str) -> str:
    import hashlib  # noqa: PLC0415  # it takes longer to load than most modules

    return hashlib.sha256(name.encode()).hexdigest()


def _is_there(file: Path) -> bool:
    return file.exists()


def _try_take(path: Path, how: int) -> tuple[int, bool] | None:
    """Lock a file (created if missing) or a directory; return None if another process holds the lock."""
    made = False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
        except FileExistsError:
            return None
        made = True
    try:
        # Without a link its previous holder has just removed it.
        if take_file_lock(descriptor, how) and os.fstat(descriptor).st_nlink:
            kept, descriptor = descriptor, -1
            return kept, made
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _end_plugins(running_dir: Path, container_id: str) -> None:
    """Kill the plugins that a killed process has left behind.

    Raises:
        PluginStillRuns: A plugin cannot be killed.
    """
    ended = kill_orphaned_plugins(running_dir, [container_id], limit_s=_KILL_LIMIT_S)
    if ended:
        pids = ", ".join(map(str, ended))
        log_event(__name__, "plugins.ended", container_id=container_id, pids=pids)
    running = find_orphaned_plugins(running_dir, [container_id])
    if running:
        raise PluginStillRuns(container_id, [str(plugin) for plugin in running])


def _unlink(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


class CombinedLocks:
    """Locks containers and networks."""

    def __init__(self, cache: AttachmentCache, wait_s: float) -> None:
        self._cache = cache
        self._locks = TaskLocks(wait_s)
        self.wait_s = wait_s

    @asynccontextmanager
    async def attachment(self, network: str, container_id: str) -> AsyncIterator[None]:
        """Run the body while no other task or process uses the container or runs GC on the network.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
            CacheError: The cache cannot be locked; the body has not run.
        """
        async with (
            self._locks.attachment(network, container_id),
            self._cache.hold(network, container_id, wait_s=self.wait_s),
        ):
            yield

    def network(self, network: str) -> AbstractAsyncContextManager[None]:
        """Run the body while no other task uses the network; other processes are not locked out.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        return self._locks.exclusive(network)


class AddsInProgress:
    """The attachments that the tasks of one runtime are adding, in any thread."""

    def __init__(self) -> None:
        self._running: set[tuple[str, AttachmentKey]] = set()
        self._observed: list[set[tuple[str, AttachmentKey]]] = []
        self._mutex = threading.Lock()

    @contextmanager
    def adding(self, network: str, key: AttachmentKey) -> Iterator[None]:
        """Count an attachment as being added while the body runs.

        Raises:
            AttachmentExists: Another task is adding it; the body has not run.
        """
        identity = (network, key)
        with self._mutex:
            if identity in self._running:
                raise AttachmentExists(network, key.container_id, key.ifname)
            for observed in self._observed:
                observed.add(identity)
            self._running.add(identity)
        try:
            yield
        finally:
            with self._mutex:
                self._running.discard(identity)

    @contextmanager
    def observed(self) -> Iterator[Collection[tuple[str, AttachmentKey]]]:
        """Give the network and key of each attachment that is being added when the body begins, or while it runs."""
        with self._mutex:
            observed = set(self._running)
            self._observed.append(observed)
        try:
            yield observed
        finally:
            with self._mutex:
                # by identity: two observers may have equal sets
                self._observed = [other for other in self._observed if other is not observed]


def make_durably(directory: Path) -> None:
    """Create a directory and its missing parents; each is on disk before the next one is created."""
    if not directory.is_dir():
        make_durably(directory.parent)
        directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        sync(directory.parent)


def sync(directory: Path) -> None:
    """Flush the entries of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
