# SPDX-License-Identifier: Apache-2.0
"""The attachment cache on disk, in libcni's layout, so that cnitool and this package can share attachments.

There is one file per attachment, `<directory>/results/<network>-<container ID>-<ifname>`, in libcni's format
(`record`). The differences are compatible with libcni:

* A new attachment is on disk, with its name, when `put` returns. Later states are synced before they replace it: after
  a power failure there is the first state or a later one, always whole. libcni's may be empty then (cni#1055).
* The attachments `a` + `b-c` and `a-b` + `c` share a file name. The second one is refused; libcni overwrites the first.
* Operations lock what they use; libcni takes no locks, so cnitool does not wait.

CNI SPEC §2, "Lifecycle & Ordering": a container is used by one operation at a time; GC has a whole network. The file
`lock` has a byte for each container and each network, and an operation holds the locks of its bytes (F_OFD_SETLK,
fcntl(2)). The end of a process releases them. An operation on a container first kills the plugins that a killed process
has left running for it, because an ADD must not continue while it is being undone.
"""

import asyncio
import fcntl
import os
import stat
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from cni_invoker.documents.attachment import AttachmentKey
from cni_invoker.documents.checks import StrPath, check_network_name
from cni_invoker.documents.jsontypes import JsonError
from cni_invoker.errors import NetworkBusy, PluginStillRuns
from cni_invoker.execution.running_plugins import find_abandoned, kill_orphaned_plugins
from cni_invoker.waiting import run_in_thread
from cni_tool.errors import AttachmentExists, CacheDamaged, CacheError
from cni_tool.messages import log_warning
from cni_tool.record import CachedAttachment, UnknownKind, parse_record, render_record

DEFAULT_CACHE_DIR: Final = Path("/var/lib/cni")
"""The same directory as libcni's."""

_FILE_MODE: Final = 0o600  # a configuration may hold credentials
_FILE_BYTES: Final = 16 << 20
"""A larger file is not an attachment: results and configurations have some kilobytes."""
_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials

_PAUSE_S: Final = 0.02
"""Between two attempts to get a lock; plugins take some tens of milliseconds."""

_KILL_LIMIT_S: Final = 10.0
"""A killed process ends immediately, unless it hangs in the kernel."""

_OFFSETS: Final = (1 << 63) - 1
_FLOCK: Final = "hhqqi4x"
"""`struct flock`: type, whence, start, length, and a process ID, which these locks do not have."""


class _UnknownRecord(CacheError):
    """The file has a record of an unknown kind."""


class FileCache:
    """Keeps attachments in files: those whose ADD has begun and whose DEL has not completed.

    A change happens completely or not at all, also when the method raises or is cancelled. Several processes may use
    one directory; who changes an attachment holds its container.

    Args:
        directory: The cache directory; it is created with the first attachment.

    Attributes:
        running_dir: Where a `Runtime` should record its running plugins; `hold` looks there for those of a killed
            process.

    Raises:
        CacheError: From every method: the cache cannot be read or written, or the attachment's record is another
            program's, of an unknown kind; that is left unchanged unless `remove` is forced.
    """

    def __init__(self, directory: StrPath = DEFAULT_CACHE_DIR) -> None:
        self._directory = Path(directory)
        self._results = self._directory / "results"
        self._lock_file = self._directory / "lock"
        self.running_dir = self._directory / "running"

    @asynccontextmanager
    async def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AsyncIterator[None]:
        """Lock a container or a network against other tasks and processes; the end of the process releases the lock.

        A plugin of a killed process that still works for the container is killed first.

        Args:
            network: The network's name.
            container_id: The container; None for GC, which excludes all others from the network.
            wait_s: How long to wait for others, in seconds.

        Raises:
            NetworkBusy: They did not end in time; the body has not run.
            PluginStillRuns: A plugin cannot be killed; the body has not run.
        """
        check_network_name(network)
        deadline = time.monotonic() + wait_s
        with reported("lock", self._lock_file):
            make_durably(self._directory)
            file = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
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

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Store `cached`, replacing an earlier state of the same attachment.

        Args:
            cached: The attachment.
            new: Refuse to replace an earlier state, unless it is damaged.

        Raises:
            AttachmentExists: It is not new; nothing has changed.
        """
        await run_in_thread(lambda: self._put(cached, new=new))

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return an attachment to the network called `network`, None if it is not cached.

        Raises:
            CacheDamaged: Its file is unreadable.
        """
        return await run_in_thread(lambda: self._find(self._file(network, key), network, key))

    async def find_readable(self, network: str, key: AttachmentKey, *, force: bool = False) -> CachedAttachment | None:
        """Return an attachment; a damaged one counts as missing, so that it cannot prevent ADD or DEL.

        With `force` so does one whose record is of an unknown kind.
        """
        try:
            return await self.find(network, key)
        except (CacheDamaged, _UnknownRecord) as exc:
            if isinstance(exc, _UnknownRecord) and not force:
                raise
            log_warning(__name__, "cache.damaged", place=str(exc.place), reason=exc.reason)
            return None

    async def remove(self, network: str, key: AttachmentKey, *, force: bool = False) -> None:
        """Remove an attachment, damaged or not; with `force` also if its record is of an unknown kind.

        If it is not cached, nothing happens.
        """
        await run_in_thread(lambda: self._remove(network, key, force=force))

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all attachments, or those to one network, by file name; libcni's `GetCachedAttachments`.

        Args:
            network: The network's name, None for all.
            whole: Raise an error instead of skipping a file that cannot be read.

        Raises:
            CacheDamaged: With `whole`: a file that may belong to the network is unreadable.
        """
        return await run_in_thread(lambda: self._list(network, whole=whole))

    def _put(self, cached: CachedAttachment, *, new: bool) -> None:
        key = cached.attachment.key
        file = self._file(cached.network, key)
        with reported("write", file):
            make_durably(self._results)
            found = None
            with suppress(CacheDamaged):
                found = _read(file)
            if found is not None and _is_of_another(found, cached.network, key):
                owner = f"{found.attachment.container_id}/{found.attachment.ifname} on {found.network}"
                raise CacheError(file, f"it has the name for this attachment, and is that of {owner}")
            if new and found is not None:
                raise AttachmentExists(cached.network, key.container_id, key.ifname)
            written = self._unfinished(cached.network, key)
            with open(written, "wb", opener=_opener(mode=_FILE_MODE)) as opened:  # Path.open has no opener
                opened.write(render_record(cached))
                opened.flush()
                if not new:
                    os.fsync(opened.fileno())  # it replaces the only state
                written.rename(file)
                if new:
                    os.fsync(opened.fileno())  # the name too: the file system's journal keeps the order

    def _remove(self, network: str, key: AttachmentKey, *, force: bool) -> None:
        file = self._file(network, key)
        with reported("write", file):
            try:
                is_own = self._find(file, network, key) is not None
            except CacheDamaged:
                is_own = True
            except _UnknownRecord:
                if not force:
                    raise
                is_own = True
            if is_own:
                file.unlink(missing_ok=True)
            self._unfinished(network, key).unlink(missing_ok=True)

    def _list(self, network: str | None, *, whole: bool) -> tuple[CachedAttachment, ...]:
        with reported("read", self._results):
            files = sorted(self._results.iterdir()) if self._results.exists() else []
        found: dict[tuple[str, AttachmentKey], CachedAttachment] = {}
        for file in files:
            try:
                cached = _read(file)
            except CacheError as exc:
                if whole and (network is None or file.name.startswith(f"{network}-")):
                    raise
                log_warning(__name__, "cache.unreadable", file=str(file), reason=exc.reason)
                continue
            if cached is not None and network in {None, cached.network}:
                found[cached.network, cached.attachment.key] = cached
        return tuple(found.values())

    def _file(self, network: str, key: AttachmentKey) -> Path:
        check_network_name(network)
        return self._results / f"{network}-{key.container_id}-{key.ifname}"

    def _unfinished(self, network: str, key: AttachmentKey) -> Path:
        """Return the file that `put` writes and renames; after a kill, the next `put` or `remove` makes an end of it.

        It is not in `results`, where libcni would mistake it for another attachment. Its name is short enough if that
        of the attachment's file is.
        """
        import hashlib  # noqa: PLC0415  # it takes longer to load than most modules

        name = f"{network}/{key.container_id}/{key.ifname}"
        return self._directory / f"{hashlib.sha256(name.encode()).hexdigest()}.new"

    def _find(self, file: Path, network: str, key: AttachmentKey) -> CachedAttachment | None:
        found = _read(file)
        return None if found is None or _is_of_another(found, network, key) else found


def _read(file: Path) -> CachedAttachment | None:
    """Return the parsed content of a file, None if the file does not exist."""
    with reported("read", file):
        try:
            with open(file, "rb", opener=_opener(os.O_NONBLOCK)) as opened:  # a FIFO would wait for a writer
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise CacheDamaged(file, "not a regular file")
                data = opened.read(_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
    if len(data) > _FILE_BYTES:
        raise CacheDamaged(file, f"it has more than {_FILE_BYTES} bytes")
    try:
        return parse_record(data)
    except UnknownKind as exc:
        raise _UnknownRecord(file, f"{exc}; delete the attachment with the program that wrote it") from exc
    except JsonError as exc:
        raise CacheDamaged(file, str(exc)) from exc


def _is_of_another(found: CachedAttachment, network: str, key: AttachmentKey) -> bool:
    return (found.network, found.attachment.key) != (network, key)


def _opener(more: int = 0, mode: int = 0) -> Callable[[str, int], int]:
    return lambda path, flags: os.open(path, flags | more | os.O_CLOEXEC, mode)


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
    ended, running = await run_in_thread(
        lambda: kill_orphaned_plugins(running_dir, [container_id], limit_s=_KILL_LIMIT_S)
    )
    if ended:
        log_warning(__name__, "plugins.ended", container_id=container_id, pids=", ".join(map(str, ended)))
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
