# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""LevelDB: bytes in, bytes out. The only user of plyvel, and of the state directory.

One process owns a state directory: it holds a lock on the file `lock` in it, which tells its process ID. Reads are
microseconds and happen where they are asked for; writes are synced to the disk, which may take long, and happen on the
database's one worker thread.

A write that failed, on a full disk for one, may leave half a record at the end of LevelDB's log: what is written behind
it is lost when the files are next opened, although it was acknowledged. So after a failure the files are closed and
opened again, which cuts the log where it is good, before anything else is written.
"""

import asyncio
import fcntl
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import plyvel

from state.errors import StateLocked, StateUnusable

__all__ = ["Database"]

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials
_LOCK_MODE: Final = 0o600


class Database:
    """An open LevelDB.

    Safe to use from one event loop. Every write is a transaction and on the disk when `write` returns; when it raises,
    nothing of it will ever be read.
    """

    def __init__(self, directory: Path, lock_fd: int, db: "plyvel.DB") -> None:
        self._path = directory
        self._lock_fd = lock_fd
        self._db = db
        self._is_sound = True
        self._files = threading.Lock()  # held while reading, and while the files are closed and opened again
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leveldb")

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the database below `directory`, making both if they do not exist.

        Raises:
            StateLocked: Another process has the directory.
            StateUnusable: The directory cannot be made, or LevelDB cannot open its files.
        """
        try:
            directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            directory.chmod(_DIRECTORY_MODE)
            lock_fd = _lock(directory)
        except OSError as exc:
            raise StateUnusable(directory, "open", exc) from exc
        try:
            db = _open(directory)
        except StateUnusable:
            os.close(lock_fd)
            raise
        return cls(directory, lock_fd, db)

    @property
    def path(self) -> Path:
        """The state directory."""
        return self._path

    def close(self) -> None:
        """Wait for writes under way, close the files, and give the state directory free."""
        self._writer.shutdown(wait=True)
        self._db.close()
        os.close(self._lock_fd)

    def get(self, key: str) -> bytes | None:
        """Return the value under `key`, None if there is none."""
        try:
            with self._files:
                value: bytes | None = self._db.get(key.encode())
        except (plyvel.Error, RuntimeError) as exc:  # RuntimeError: closed, and could not be opened again
            raise StateUnusable(self._path, "read", _text(exc)) from exc
        return value

    def scan(self, prefix: str) -> tuple[tuple[str, bytes], ...]:
        """Return the keys that begin with `prefix`, in their order, with their values."""
        try:
            with self._files, self._db.iterator(prefix=prefix.encode()) as entries:
                return tuple((key.decode("utf-8", "backslashreplace"), value) for key, value in entries)
        except (plyvel.Error, RuntimeError) as exc:
            raise StateUnusable(self._path, "read", _text(exc)) from exc

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """Store values under their keys, or remove the keys whose value is None, all or nothing, synced.

        A caller that is cancelled meanwhile does not stop the write.

        Raises:
            StateUnusable: Nothing has been written, e.g. for lack of space.
        """
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, self.write_now, changes))

    def write_now(self, changes: Mapping[str, bytes | None]) -> None:
        """Do what `write` does, in the calling thread."""
        if not self._is_sound:
            self._reopen()
        try:
            # Without transaction=True plyvel writes the batch even when its body raises.
            with self._db.write_batch(transaction=True, sync=True) as batch:
                for key, value in changes.items():
                    if value is None:
                        batch.delete(key.encode())
                    else:
                        batch.put(key.encode(), value)
        except plyvel.Error as exc:
            self._is_sound = False
            raise StateUnusable(self._path, "write", _text(exc)) from exc

    def _reopen(self) -> None:
        with self._files:
            self._db.close()
            self._db = _open(self._path)
            self._is_sound = True


def _open(directory: Path) -> "plyvel.DB":
    try:
        return plyvel.DB(str(directory / "leveldb"), create_if_missing=True, paranoid_checks=True)
    except plyvel.Error as exc:
        raise StateUnusable(directory, "open", _text(exc)) from exc


def _text(error: Exception) -> str:
    """Return an error's text; LevelDB's come as bytes."""
    return " ".join(part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in error.args)


def _lock(directory: Path) -> int:
    """Return a descriptor that holds the directory's lock for as long as it is open."""
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        holder = os.read(fd, 32).strip()
        os.close(fd)
        raise StateLocked(directory, int(holder) if holder.isdigit() else None) from exc
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
