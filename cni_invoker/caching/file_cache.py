# SPDX-License-Identifier: Apache-2.0
"""The attachment cache on disk, in libcni's layout, so that cnitool and this package can share attachments.

There is one file per attachment, `<directory>/results/<network>-<container ID>-<ifname>`, in libcni's format
(`record`). The differences are compatible with libcni:

* A new attachment is on disk, with its name, when `put` returns. Later states are synced before they replace it: after
  a power failure there is the first state or a later one, always whole. libcni's may be empty then (cni#1055).
* The attachments `a` + `b-c` and `a-b` + `c` share a file name, and libcni lets one overwrite the other. Here the
  second one gets the shared name with a hash appended. libcni still lists it, because it lists by content.
* A name that is too long for a file (255 bytes), which libcni cannot store, is truncated, with a hash appended.
* Operations lock what they use (`locks`); libcni takes no locks, so cnitool does not wait.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from cni_invoker.caching.cache import CachedAttachment
from cni_invoker.caching.locks import OperationLocks, make_durably, reported
from cni_invoker.caching.record import UnknownKind, parse_record, render_record
from cni_invoker.documents.attachment import AttachmentKey
from cni_invoker.documents.checks import StrPath, check_network_name
from cni_invoker.documents.jsontypes import JsonError
from cni_invoker.errors import AttachmentExists, CacheDamaged, CacheError, CacheUnknown
from cni_invoker.locks import take_file_lock
from cni_invoker.messages import log_event
from cni_invoker.waiting import run_in_thread

DEFAULT_CACHE_DIR: Final = Path("/var/lib/cni")
"""The same directory as libcni's."""

_FILE_MODE: Final = 0o600  # a configuration may hold credentials
_FILE_BYTES: Final = 16 << 20
"""A larger file is not an attachment: results and configurations have some kilobytes."""

_LOCK_PAUSE_S: Final = 0.005
"""Between two attempts to get the lock; a change takes some milliseconds."""

_NAME_BYTES: Final = 255
_DIGEST_CHARS: Final = 16


class FileCache:
    """Keeps attachments in files. A new one is on disk when `put` returns; what follows survives the process.

    Several processes may use one directory; its lock is held for the milliseconds of one change.

    Args:
        directory: The cache directory; it is created with the first attachment.
        lock_s: How long to wait for another process to release the lock, in seconds.
    """

    def __init__(self, directory: StrPath = DEFAULT_CACHE_DIR, *, lock_s: float = 10.0) -> None:
        directory = Path(directory)
        self._directory = directory
        self._lock_s = lock_s
        self._results = directory / "results"
        self._locks = OperationLocks(directory)

    @property
    def running_dir(self) -> Path:
        """Where a `Runtime` should record its running plugins; `hold` looks there for those of a killed process."""
        return self._locks.running_dir

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:
        """Lock a container or a network against other tasks and processes; the end of the process releases the lock.

        A plugin of a killed process that still works for the container is killed first.

        Raises:
            PluginStillRuns: It cannot be killed.
        """
        return self._locks.hold(network, container_id, wait_s=wait_s)

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Store `cached`."""
        await run_in_thread(lambda: self._put(cached, new=new))

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return an attachment."""
        return await run_in_thread(lambda: self._find(network, key))

    async def remove(self, network: str, key: AttachmentKey) -> None:
        """Remove an attachment, also if its file is unreadable."""
        await run_in_thread(lambda: self._remove(network, key))

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all attachments, or those to one network, by file name; libcni's `GetCachedAttachments`."""
        return await run_in_thread(lambda: self._list(network, whole=whole))

    def _put(self, cached: CachedAttachment, *, new: bool) -> None:
        key = cached.attachment.key
        with reported("write", self._results):
            make_durably(self._results)
            with _locked(self._results, self._lock_s):
                file, found = self._locate(cached.network, key)
                if new and found is not None:
                    raise AttachmentExists(cached.network, key.container_id, key.ifname)
                # Not in `results`: after a crash, libcni would mistake it for another attachment.
                written = self._directory / "results.new"
                with open(written, "wb", opener=_open_private) as opened:  # Path.open has no opener
                    opened.write(render_record(cached))
                    opened.flush()
                    if not new:
                        os.fsync(opened.fileno())  # it replaces the only state
                    written.rename(file)
                    if new:
                        os.fsync(opened.fileno())  # the name too: the file system's journal keeps the order

    def _locate(self, network: str, key: AttachmentKey) -> tuple[Path, CachedAttachment | None]:
        """Return the file that an attachment has or gets, and what it contains; None if that is damaged or not there.

        Raises:
            CacheUnknown: It has an unknown format.
        """
        own, shared = self._files(network, key)
        file = own if own.exists() else shared
        try:
            found = _read(file)
        except CacheDamaged:
            return file, None
        return (own, None) if _is_of_another(found, network, key) else (file, found)

    def _find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        for file in self._files(network, key):
            found = _read(file)
            if found is not None and not _is_of_another(found, network, key):
                return found
        return None

    def _remove(self, network: str, key: AttachmentKey) -> None:
        with reported("write", self._results):
            if not self._results.exists():
                return
            with _locked(self._results, self._lock_s):
                for file in self._files(network, key):
                    found = None
                    with suppress(CacheDamaged, CacheUnknown):
                        found = _read(file)
                    if file.exists() and not _is_of_another(found, network, key):
                        file.unlink()
                        return

    def _list(self, network: str | None, *, whole: bool) -> tuple[CachedAttachment, ...]:
        with reported("read", self._results):
            files = sorted(self._results.iterdir()) if self._results.exists() else []
        found: dict[tuple[str, AttachmentKey], CachedAttachment] = {}
        for file in files:
            try:
                cached = _read(file)
            except CacheError as exc:
                if whole and (network is None or file.name.startswith(_beginning(f"{network}-"))):
                    raise
                log_event(__name__, "cache.unreadable", file=str(file), reason=exc.reason)
                continue
            if cached is not None and network in {None, cached.network}:
                found[cached.network, cached.attachment.key] = cached
        return tuple(found.values())

    def _files(self, network: str, key: AttachmentKey) -> tuple[Path, Path]:
        """Return the file name that is unique to this attachment, and libcni's; the same if that would be too long."""
        check_network_name(network)
        name = f"{network}-{key.container_id}-{key.ifname}"
        own = self._results / f"{_beginning(name)}-{_digest(f'{network}/{key.container_id}/{key.ifname}')}"
        return own, self._results / name if len(name.encode()) <= _NAME_BYTES else own


def _beginning(name: str) -> str:
    """Return the beginning of a file's name, so that a digest fits after it."""
    return name.encode()[: _NAME_BYTES - _DIGEST_CHARS - 1].decode(errors="ignore")


def _read(file: Path) -> CachedAttachment | None:
    """Return the parsed content of a file, None if the file does not exist."""
    with reported("read", file):
        try:
            with open(file, "rb", opener=_open_at_once) as opened:  # Path.open has no opener
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
        raise CacheUnknown(file, f"{exc}; delete the attachment with the program that wrote it") from exc
    except JsonError as exc:
        raise CacheDamaged(file, str(exc)) from exc


def _is_of_another(found: CachedAttachment | None, network: str, key: AttachmentKey) -> bool:
    return found is not None and (found.network, found.attachment.key) != (network, key)


def _digest(text: str) -> str:
    import hashlib  # noqa: PLC0415  # it takes longer to load than most modules

    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


@contextmanager
def _locked(directory: Path, within_s: float) -> Iterator[None]:
    """Hold the directory's lock, which every process holds only for one change."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + within_s
    try:
        while not take_file_lock(descriptor):
            if time.monotonic() > deadline:
                raise CacheError(directory, f"another process has had its lock for {within_s:g} s")
            time.sleep(_LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for a writer


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
