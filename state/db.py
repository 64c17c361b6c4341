# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""LevelDB: keys and values as bytes. The only user of plyvel.

One process owns a state directory: it locks the file `lock`, which contains its process ID. The store reads everything
when it opens the database; later only writes read, namely what their keys have. Writes are synced to disk, which may
take long, and run on the database's worker thread. Those that come meanwhile share the next sync, so that a slow disk
delays many writes no longer than one or two.

A failed write, for example on a full disk, may leave half a record at the end of LevelDB's log. Records that are
written after it would be lost at the next open, although they were acknowledged. So after a failure the files are
closed and opened again before the next write, which truncates the log to its intact part. The failed write may also be
complete but not synced; so the next write also stores what its keys had before.

Damaged files are repaired by LevelDB, in a copy. LevelDB does not report what a repair has lost, so each write also
stores the number of keys. A repaired value may be wrong: the store checks the checksum of each.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as with_changes
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Self

import plyvel

from cni_bridge_state.directory import Damage, copy_aside, finish_replacement, lock_directory, replace, unlock
from cni_bridge_state.errors import RecordDamaged, StateUnusable

_FILES: Final = "leveldb"
_FIRST_MANIFEST: Final = "MANIFEST-000001"
_BUFFER_BYTES: Final = 1 << 20
"""LevelDB's buffers in memory. The defaults add up to 16 MB, and most values are read only once."""

_BATCH: Final = 64
"""Number of writes that share a sync: the event loop ends all of them in one turn."""

_READ_AT_ONCE: Final = 200
"""Number of entries that are read before they are parsed."""

_COUNT: Final = "meta/count"
"""The key of the number of all other keys."""

Check = Callable[[Callable[[str], bytes | None]], None]


class Database:
    """An open LevelDB.

    Use it from one event loop. Every write is atomic and on disk when `write` returns; if `write` raises, none of it
    will ever be read. Writes reach the disk in the order of the calls.
    """

    def __init__(self, directory: Path, lock_fd: int, files: "_Files") -> None:
        self.path = directory
        self.findings = files.findings
        self._lock_fd = lock_fd
        self._db = files.db
        self._count = files.found
        self._is_sound = True
        self._unsure: Mapping[str, bytes | None] = {}  # what the keys of failed writes had; they may be on disk
        self._queue: deque[_Write] = deque()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leveldb")

    @classmethod
    def open(cls, directory: Path, check: Check) -> Self:
        """Open the database in `directory`; create both if they do not exist.

        Damaged files are set aside, and a repaired copy takes their place; `findings` has the damage. Before that,
        `check` is called with what returns the values of the repaired copy; if it raises, nothing changes.

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
        """Return the value under `key`, None if there is none; not while there may be a write."""
        return _get(self._db, key)

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Yield the keys that begin with `prefix`, in order, with their values; not while there may be a write."""
        with self._db.iterator(prefix=prefix.encode(), fill_cache=False) as entries:
            # plyvel releases the GIL for each entry, so briefly that other threads wake up and do not get it. Parsing
            # between the entries would block the event loop for 150 ms.
            while batch := tuple(islice(entries, _READ_AT_ONCE)):
                yield from ((_text_of(key), value) for key, value in batch if key != _bytes_of(_COUNT))

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

        Cancelling the caller does not stop the write. `on_written` is called in the event loop once the changes are on
        disk, before this method returns; an error that it raises is reported to the event loop. Without `sync` they
        survive the end of the process, but not a crash of the host, and take microseconds.

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
        before = self._unsure
        try:
            if not self._is_sound:
                self._db.close()
                self._db = _open(self.path / _FILES)
                self._is_sound = True
            before = {**{key: _get_if_readable(self._db, key) for key in changes}, **self._unsure}
            added = sum((value is not None) - (before[key] is not None) for key, value in changes.items())
            _put(self._db, {**self._unsure, **changes, _COUNT: b"%d" % (self._count + added)}, sync=sync)
        except plyvel.Error as exc:
            self._is_sound = False
            self._unsure = before
            raise StateUnusable(self.path, "write", _text(exc)) from exc
        self._unsure = {}
        self._count += added


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """A write that waits; `end` is called with its error, or with None when it is on disk."""

    changes: Mapping[str, bytes | None]
    sync: bool
    end: Callable[[BaseException | None], object]


@dataclass(frozen=True, slots=True)
class _Files:
    """An open LevelDB; it has `found` keys without that of the count, and had `count` after the last write."""

    db: "plyvel.DB"
    found: int
    count: int
    findings: tuple[Damage, ...] = ()


def _open_or_repair(directory: Path, check: Check) -> _Files:
    files = directory / _FILES
    fault = _find_fault(files) if files.is_dir() else None
    if fault is None:
        try:
            return _open_and_count(files)
        except plyvel.Error as exc:  # on a full or unreadable disk, the copy fails as well, and nothing changes
            fault = _text(exc)
    copy = replace(directory, _FILES, lambda new: _write_repaired(files, new, check))
    opened = _open_and_count(files)
    finding = Damage(what=f"database damaged: {fault}", lost=max(opened.count - opened.found, 0), copy=copy)
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
    """Write a repaired copy."""
    shutil.copytree(damaged, new)
    plyvel.repair_db(str(new), paranoid_checks=True)
    opened = _open_and_count(new)
    try:
        check(partial(_get, opened.db))
    finally:
        opened.db.close()


def _open(files: Path) -> "plyvel.DB":
    return plyvel.DB(
        str(files),
        create_if_missing=True,
        paranoid_checks=True,
        write_buffer_size=_BUFFER_BYTES,
        lru_cache_size=_BUFFER_BYTES,
        compression=None,  # with it, reading thousands of records takes more than twice as long
    )


def _open_and_count(files: Path) -> _Files:
    db = _open(files)
    try:
        with db.iterator(verify_checksums=True, fill_cache=False) as entries:
            found = sum(1 for _ in entries)
        count = _get(db, _COUNT)
    except BaseException:
        db.close()
        raise
    found -= count is not None
    return _Files(db, found, int(count) if count is not None and count.isdigit() else found)


def _get(db: "plyvel.DB", key: str) -> bytes | None:
    value: bytes | None = db.get(_bytes_of(key), fill_cache=False)
    return value


def _get_if_readable(db: "plyvel.DB", key: str) -> bytes | None:
    """Return the value under `key`, None if there is none.

    One that is damaged must be replaceable: it becomes empty. So may a key without a value whose neighbours are
    damaged, and then the number of keys is too low.
    """
    try:
        return _get(db, key)
    except plyvel.CorruptionError:
        return b""


def _put(db: "plyvel.DB", changes: Mapping[str, bytes | None], *, sync: bool = True) -> None:
    # Without transaction=True plyvel writes the batch even when its body raises.
    with db.write_batch(transaction=True, sync=sync) as batch:
        for key, value in changes.items():
            if value is None:
                batch.delete(_bytes_of(key))
            else:
                batch.put(_bytes_of(key), value)


def _text_of(key: bytes) -> str:
    """Return a key as text, from which `_bytes_of` makes the same bytes: a repaired key may be anything."""
    return key.decode("utf-8", "surrogateescape")


def _bytes_of(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _shown(key: str) -> str:
    """Return a key to be printed; bytes that are not UTF-8 as escapes."""
    return _bytes_of(key).decode("utf-8", "backslashreplace")


def _text(error: Exception) -> str:
    """Return an error's text; LevelDB's come as bytes."""
    if isinstance(error, plyvel.Error):
        return " ".join(
            part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in error.args
        )
    return str(error)
