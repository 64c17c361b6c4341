# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""LevelDB: keys and values as bytes. The only user of plyvel.

One process owns a state directory: it locks the file `lock`, which contains its process ID. The content is small and is
kept in memory, so reads never wait, and even with a full or broken disk we know what has to be cleaned up. Writes are
synced to disk, which may take long, and run on the database's worker thread. Those that come meanwhile share the next
sync, so that a slow disk delays many writes no longer than one or two.

A failed write, for example on a full disk, may leave half a record at the end of LevelDB's log. Records that are
written after it would be lost at the next open, although they were acknowledged. So after a failure the files are
closed and opened again before the next write, which truncates the log to its intact part. The failed write may also be
complete but not synced; then the next write reverts it.

Damaged files are repaired by LevelDB, in a copy. LevelDB does not report what a repair has lost, so each write also
stores the number of keys. A repaired value may be wrong: the store checks the checksum of each.
"""

import asyncio
import shutil
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as with_changes
from pathlib import Path
from typing import Final, Self

import plyvel

from cni_bridge_state.directory import Damage, copy_aside, finish_replacement, lock_directory, replace, unlock
from cni_bridge_state.errors import RecordDamaged, StateUnusable

_FILES: Final = "leveldb"
_FIRST_MANIFEST: Final = "MANIFEST-000001"
_BUFFER_BYTES: Final = 1 << 20
"""LevelDB's buffers in memory. The defaults add up to 16 MB, and each value is read only once."""

_BATCH: Final = 64
"""Number of writes that share a sync: the event loop ends all of them in one turn."""

_COUNT: Final = "meta/count"
"""The key of the number of all other keys."""

Check = Callable[[Mapping[str, bytes]], None]


class Database:
    """An open LevelDB.

    Use it from one event loop. Every write is atomic and on disk when `write` returns; if `write` raises, none of it
    will ever be read. Writes reach the disk in the order of the calls.

    Attributes:
        path: The state directory.
        findings: The damage that was found when it was opened.
    """

    def __init__(self, directory: Path, lock_fd: int, files: "_Files") -> None:
        self.path = directory
        self.findings = files.findings
        self._lock_fd = lock_fd
        self._db = files.db
        self._values = files.values
        self._is_sound = True
        self._unsure: set[str] = set()  # keys of failed writes: they may be on disk nevertheless
        self._memory = threading.Lock()  # makes a batch visible atomically
        self._queue: deque[_Write] = deque()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leveldb")

    @classmethod
    def open(cls, directory: Path, check: Check) -> Self:
        """Open the database in `directory`; create both if they do not exist.

        Damaged files are set aside, and a repaired copy takes their place; see `findings`.

        Args:
            directory: The state directory.
            check: Called with the repaired content before it replaces the damaged files; if it raises, nothing changes.

        Raises:
            StateLocked: Another process uses the directory.
            StateUnusable: The directory cannot be created, or its files cannot be read or written.
        """
        lock_fd = lock_directory(directory)
        try:
            finish_replacement(directory, _FILES)
            return cls(directory, lock_fd, _open_or_repair(directory, check))
        except (OSError, plyvel.Error) as exc:
            unlock(lock_fd)
            raise StateUnusable(directory, "open", _text(exc)) from exc
        except BaseException:
            unlock(lock_fd)
            raise

    def close(self) -> None:
        """Wait for pending writes, close the files, and release the state directory."""
        self._writer.shutdown(wait=True)
        self._db.close()
        unlock(self._lock_fd)

    def get(self, key: str) -> bytes | None:
        """Return the value under `key`, None if there is none."""
        return self._values.get(key)

    def scan(self, prefix: str) -> tuple[tuple[str, bytes], ...]:
        """Return the keys that begin with `prefix`, in their order, with their values."""
        with self._memory:
            entries = [(key, value) for key, value in self._values.items() if key.startswith(prefix)]
        return tuple(sorted(entries))

    def set_aside(self, damaged: Sequence[RecordDamaged]) -> tuple[Damage, ...]:
        """Remove damaged records, after copying the files that have them; return a finding for each.

        Raises:
            StateUnusable: The files cannot be copied or written; no record has been removed.
        """
        if not damaged:
            return ()
        self._db.close()  # or LevelDB might remove files meanwhile
        self._is_sound = False
        try:
            copy = copy_aside(self.path, _FILES)
        except OSError as exc:
            raise StateUnusable(self.path, "set damaged records aside from", exc) from exc
        self.write_now(dict.fromkeys(error.key for error in damaged))
        return tuple(Damage(what=f"record {_shown(error.key)}: {error.reason}", lost=1, copy=copy) for error in damaged)

    async def write(
        self,
        changes: Mapping[str, bytes | None],
        on_written: Callable[[], object] = lambda: None,
        *,
        sync: bool = True,
    ) -> None:
        """Store values, or remove the keys whose value is None, in one transaction.

        Cancelling the caller does not stop the write.

        Args:
            changes: Keys and values.
            on_written: Called in the event loop once they are on disk, before this method returns. An error that it
                raises is reported to the event loop.
            sync: Whether they must survive a crash of the host. Without it they survive the end of the process only,
                and take microseconds.

        Raises:
            StateUnusable: Nothing has been written, for example because the disk is full.
        """
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def end(error: BaseException | None) -> None:
            if error is None:
                try:
                    on_written()
                except Exception as exc:  # noqa: BLE001 - the write has succeeded
                    loop.call_exception_handler({"message": "after a write", "exception": exc})
            if written.done():  # the caller has been cancelled
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._queue.append(_Write(changes=changes, sync=sync, end=lambda error: loop.call_soon_threadsafe(end, error)))
        # `run_in_executor` would take two more turns of the event loop
        self._writer.submit(self._write_queued)
        await written

    def _write_queued(self) -> None:
        """Store the writes that wait in one transaction; does nothing if an earlier call has stored them.

        If it fails, each is stored by itself: one that is refused must not take the others along.
        """
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))]
        try:
            if batch:
                changes = {key: value for write in batch for key, value in write.changes.items()}
                self.write_now(changes, sync=any(write.sync for write in batch))
        except Exception as exc:  # noqa: BLE001 - the caller gets it
            for write in batch:
                write.end(self._try_alone(write) if len(batch) > 1 else exc)
        else:
            for write in batch:
                write.end(None)

    def _try_alone(self, write: "_Write") -> Exception | None:
        try:
            self.write_now(write.changes, sync=write.sync)
        except Exception as exc:  # noqa: BLE001 - the caller gets it
            return exc
        return None

    def write_now(self, changes: Mapping[str, bytes | None], *, sync: bool = True) -> None:
        """Like `write`, but in the calling thread."""
        undone = {key: self._values.get(key) for key in self._unsure}
        try:
            if not self._is_sound:
                self._db.close()
                self._db = _open(self.path / _FILES)
                self._is_sound = True
            added = sum((value is not None) - (key in self._values) for key, value in changes.items())
            everything = {**undone, **changes, _COUNT: b"%d" % (len(self._values) + added)}
            _put(self._db, everything, sync=sync)
        except plyvel.Error as exc:
            self._is_sound = False
            self._unsure.update(changes)
            raise StateUnusable(self.path, "write", _text(exc)) from exc
        self._unsure.clear()
        with self._memory:
            for key, value in changes.items():
                if value is None:
                    self._values.pop(key, None)
                else:
                    self._values[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A write that waits.

    Attributes:
        changes: Keys and values.
        sync: Whether they must survive a crash of the host.
        end: Called with its error, or with None when it is on disk.
    """

    changes: Mapping[str, bytes | None]
    sync: bool
    end: Callable[[BaseException | None], object]


@dataclass(frozen=True, slots=True)
class _Files:
    """An open LevelDB, its content without the count, the count, and the damage that was found."""

    db: "plyvel.DB"
    values: dict[str, bytes]
    count: int
    findings: tuple[Damage, ...] = ()


def _open_or_repair(directory: Path, check: Check) -> _Files:
    files = directory / _FILES
    fault = _find_fault(files) if files.is_dir() else None
    if fault is None:
        try:
            return _open_and_load(files)
        except plyvel.Error as exc:  # on a full or unreadable disk, the copy fails as well, and nothing changes
            fault = _text(exc)
    copy = replace(directory, _FILES, lambda new: _write_repaired(files, new, check))
    opened = _open_and_load(files)
    finding = Damage(what=f"database damaged: {fault}", lost=max(opened.count - len(opened.values), 0), copy=copy)
    return with_changes(opened, findings=(finding,))


def _find_fault(files: Path) -> str | None:
    """Return a fault for which LevelDB would begin anew or lose the newest writes silently; None if there is none."""
    names = {path.name for path in files.iterdir()}
    has_log, has_tables = (any(name.endswith(suffix) for name in names) for suffix in (".log", ".ldb"))
    if "CURRENT" not in names:
        # A database whose creation was interrupted has at most a first manifest.
        later = any(name.startswith("MANIFEST-") and name != _FIRST_MANIFEST for name in names)
        return "CURRENT is missing" if has_log or has_tables or later else None
    if not has_log and (has_tables or _FIRST_MANIFEST not in names):
        return "the log is missing"
    return None


def _write_repaired(damaged: Path, new: Path, check: Check) -> None:
    """Write a repaired copy.

    Raises:
        plyvel.Error: LevelDB cannot repair it.
        OSError: A file cannot be read or written.
    """
    shutil.copytree(damaged, new)
    plyvel.repair_db(str(new), paranoid_checks=True)
    opened = _open_and_load(new)
    opened.db.close()
    check(opened.values)


def _open(files: Path) -> "plyvel.DB":
    return plyvel.DB(
        str(files),
        create_if_missing=True,
        paranoid_checks=True,
        write_buffer_size=_BUFFER_BYTES,
        lru_cache_size=_BUFFER_BYTES,
        compression=None,  # with it, reading thousands of records takes more than twice as long
    )


def _open_and_load(files: Path) -> _Files:
    db = _open(files)
    try:
        with db.iterator(verify_checksums=True, fill_cache=False) as entries:
            values = {key.decode("utf-8", "surrogateescape"): value for key, value in entries}
    except BaseException:
        db.close()
        raise
    count = values.pop(_COUNT, b"")
    return _Files(db, values, int(count) if count.isdigit() else len(values))


def _put(db: "plyvel.DB", changes: Mapping[str, bytes | None], *, sync: bool = True) -> None:
    # Without transaction=True plyvel writes the batch even when its body raises.
    with db.write_batch(transaction=True, sync=sync) as batch:
        for key, value in changes.items():
            encoded = key.encode("utf-8", "surrogateescape")  # a repaired key may be anything
            if value is None:
                batch.delete(encoded)
            else:
                batch.put(encoded, value)


def _shown(key: str) -> str:
    """Return a key as text; bytes that are not UTF-8, which a repair may bring, as escapes."""
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(error: Exception) -> str:
    """Return an error's text; LevelDB's come as bytes."""
    if isinstance(error, plyvel.Error):
        return " ".join(
            part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in error.args
        )
    return str(error)
