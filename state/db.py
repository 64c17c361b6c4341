# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""LevelDB: bytes in, bytes out. The only user of plyvel, and of the state directory.

One process owns a state directory: it holds a lock on the file `lock` in it, which tells its process ID. The content
is small and is held in memory: reads never wait, and a disk that is full or broken does not keep us from knowing what
there is to be cleaned up. Writes are synced to the disk, which may take long, and happen on the database's one worker
thread.

A write that failed, on a full disk for one, may leave half a record at the end of LevelDB's log: what is written behind
it is lost when the files are next opened, although it was acknowledged. So after a failure the files are closed and
opened again, which cuts the log where it is good, before anything else is written. It may also have been written whole
and only not synced: then the next write takes it back.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import plyvel

from state.directory import finish_replacement, lock_directory, release, replace
from state.errors import StateUnusable
from state.salvage.finding import Finding
from state.salvage.salvage import Salvage, find_fault, read_good

__all__ = ["Database"]

_FILES: Final = "leveldb"
_BUFFER_BYTES: Final = 1 << 20
"""What LevelDB may hold back in memory; the default is 16 MB in all, and it is read only once."""

_LEFT_BYTES: Final = 1 << 14
"""Opening the database the next time takes some kilobytes."""

Check = Callable[[Mapping[str, bytes]], None]


class Database:
    """An open LevelDB.

    Safe to use from one event loop. Every write is a transaction and on the disk when `write` returns; when it raises,
    nothing of it will ever be read.

    Attributes:
        path: The state directory.
        findings: The damage that was met when it was opened.
    """

    def __init__(self, directory: Path, lock_fd: int, files: "_Files") -> None:
        self.path = directory
        self.findings = files.findings
        self._lock_fd = lock_fd
        self._db = files.db
        self._values = files.values
        self._is_sound = True
        self._unsure: set[str] = set()  # keys of writes that failed: the disk may have them all the same
        self._is_holding = False
        self._memory = threading.Lock()  # a batch appears as a whole
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leveldb")

    @classmethod
    def open(cls, directory: Path, check: Check) -> Self:
        """Open the database below `directory`, making both if they do not exist.

        Damaged files are set aside, and what is good in them goes into new ones; see `findings`.

        Args:
            directory: The state directory.
            check: Called with what was salvaged before it takes the place of the damaged files; what it raises leaves
                everything as it was.

        Raises:
            StateLocked: Another process has the directory.
            StateUnusable: The directory cannot be made, or its files cannot be read or written.
        """
        lock_fd = lock_directory(directory)
        try:
            finish_replacement(directory, _FILES)
            return cls(directory, lock_fd, _open_or_salvage(directory, check))
        except (OSError, plyvel.Error) as exc:
            release(lock_fd)
            raise StateUnusable(directory, "open", _text(exc)) from exc
        except BaseException:
            release(lock_fd)
            raise

    def close(self) -> None:
        """Wait for writes under way, close the files, and give the state directory free."""
        self._writer.shutdown(wait=True)
        self._db.close()
        release(self._lock_fd)

    def get(self, key: str) -> bytes | None:
        """Return the value under `key`, None if there is none."""
        return self._values.get(key)

    def scan(self, prefix: str) -> tuple[tuple[str, bytes], ...]:
        """Return the keys that begin with `prefix`, in their order, with their values."""
        with self._memory:
            found = [(key, value) for key, value in self._values.items() if key.startswith(prefix)]
        return tuple(sorted(found))

    async def write(self, changes: Mapping[str, bytes | None], on_written: Callable[[], None] = lambda: None) -> None:
        """Store values under their keys, or remove the keys whose value is None, all or nothing, synced.

        A caller that is cancelled meanwhile does not stop the write.

        Args:
            changes: Keys and values.
            on_written: Called in the event loop once they are on the disk, before this returns.

        Raises:
            StateUnusable: Nothing has been written, e.g. for lack of space.
        """
        loop = asyncio.get_running_loop()
        known: asyncio.Future[None] = loop.create_future()

        def make_known(written: asyncio.Future[None]) -> None:
            error = written.exception()
            if error is None:
                on_written()
                known.set_result(None)
            else:
                known.set_exception(error)

        # Not the write itself is awaited: from Python 3.14 on it may be done by now, before `on_written` was called.
        loop.run_in_executor(self._writer, self.write_now, changes).add_done_callback(make_known)
        await asyncio.shield(known)

    def hold(self, changes: Mapping[str, bytes]) -> None:
        """Have values in memory now, and on the disk together with whatever is written next."""
        with self._memory:
            self._values.update(changes)
        self._unsure.update(changes)
        self._is_holding = True

    def write_now(self, changes: Mapping[str, bytes | None]) -> None:
        """Do what `write` does, in the calling thread."""
        undone = {key: self._values.get(key) for key in self._unsure}
        try:
            if not self._is_sound:
                self._db.close()
                self._db = _open(self.path / _FILES)
                self._is_sound = True
            everything = {**undone, **changes}
            if self._is_holding:
                _require_space(self.path, everything)
            _put(self._db, everything)
        except plyvel.Error as exc:
            self._is_sound = False
            self._unsure.update(changes)
            raise StateUnusable(self.path, "write", _text(exc)) from exc
        self._unsure.clear()
        self._is_holding = False
        with self._memory:
            for key, value in changes.items():
                if value is None:
                    self._values.pop(key, None)
                else:
                    self._values[key] = value


@dataclass(frozen=True, slots=True)
class _Files:
    """An open LevelDB, what is in it, and the damage that was met."""

    db: "plyvel.DB"
    values: dict[str, bytes]
    findings: tuple[Finding, ...] = ()


def _open_or_salvage(directory: Path, check: Check) -> _Files:
    files = directory / _FILES
    fault = find_fault(files) if files.is_dir() else None
    if fault is None:
        try:
            return _open_and_load(files)
        except plyvel.Error as exc:
            fault = _text(exc)
            # A disk that is full, or does not let itself be read, is no damage: nothing is gained by new files.
            if not isinstance(exc, plyvel.CorruptionError) and not read_good(files).losses:
                raise
    salvage = read_good(files)
    check(salvage.entries)
    copy = replace(directory, _FILES, lambda new: _write_new(new, salvage.entries))
    opened = _open_and_load(files)
    return _Files(opened.db, opened.values, (_describe(fault, salvage, copy),))


def _describe(fault: str, salvage: Salvage, copy: Path) -> Finding:
    kept = {key.partition("/")[2] for key in salvage.entries}
    named = sorted({name for loss in salvage.losses for name in loss.ids})
    parts = [f"database damaged: {fault}", *(loss.what for loss in salvage.losses)]
    return Finding(
        what="; ".join(parts),
        lost=tuple(name for name in named if name not in kept),
        outdated=tuple(name for name in named if name in kept),
        copy=copy,
    )


def _open(files: Path) -> "plyvel.DB":
    return plyvel.DB(
        str(files),
        create_if_missing=True,
        paranoid_checks=True,
        write_buffer_size=_BUFFER_BYTES,
        lru_cache_size=_BUFFER_BYTES,
    )


def _open_and_load(files: Path) -> _Files:
    db = _open(files)
    try:
        with db.iterator(verify_checksums=True, fill_cache=False) as entries:
            return _Files(db, {key.decode("utf-8", "backslashreplace"): value for key, value in entries})
    except BaseException:
        db.close()
        raise


def _write_new(files: Path, entries: Mapping[str, bytes]) -> None:
    db = _open(files)
    try:
        _put(db, entries)
    finally:
        db.close()


def _require_space(directory: Path, changes: Mapping[str, bytes | None]) -> None:
    """Begin no write that cannot be completed: what was written of it would take the last space of the disk.

    Raises:
        StateUnusable: There is no space for it.
    """
    needed = sum(len(key) + len(value or b"") for key, value in changes.items())
    disk = os.statvfs(directory)
    free = disk.f_bavail * disk.f_frsize
    if needed > free - _LEFT_BYTES:
        reason = f"{os.strerror(errno.ENOSPC)}: {needed} bytes are to be written, {free} are free"
        raise StateUnusable(directory, "write", reason)


def _put(db: "plyvel.DB", changes: Mapping[str, bytes | None]) -> None:
    # Without transaction=True plyvel writes the batch even when its body raises.
    with db.write_batch(transaction=True, sync=True) as batch:
        for key, value in changes.items():
            if value is None:
                batch.delete(key.encode())
            else:
                batch.put(key.encode(), value)


def _text(error: Exception) -> str:
    """Return an error's text; LevelDB's come as bytes."""
    if isinstance(error, plyvel.Error):
        return " ".join(
            part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in error.args
        )
    return str(error)
