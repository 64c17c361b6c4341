# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state directory: its lock, the crash-safe replacement of the database in it, and copies of what was damaged.

| name                        | what it is                                                                |
| --------------------------- | ------------------------------------------------------------------------- |
| `lock`                      | locked by the process whose ID it contains                                |
| `leveldb`                   | the database                                                              |
| `leveldb.unfinished`        | a database or a copy that is being written; worthless after a crash       |
| `leveldb.next`              | a complete new database; becomes `leveldb` once that has been moved aside |
| `leveldb.damaged-TIME`      | a damaged database, or one with damaged records; the newest five are kept |
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cni_bridge_state.errors import StateLocked, StateUnusable

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials
_LOCK_MODE: Final = 0o600
_KEPT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damage that was found.

    Attributes:
        what: What was damaged, and how.
        lost: How many records were lost by it, as far as it can be known.
    """

    what: str
    lost: int
    copy: Path

    def __str__(self) -> str:
        records = "1 record was lost" if self.lost == 1 else f"{self.lost} records were lost"
        return f"{self.what}; {records}; what was found is kept in {self.copy}"


def lock_directory(directory: Path) -> int:
    """Create a private directory and return a descriptor that holds its lock as long as it is open."""
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        directory.chmod(_DIRECTORY_MODE)
        return _lock(directory)
    except OSError as exc:
        raise StateUnusable(directory, "open", exc) from exc


def unlock(lock_fd: int) -> None:
    """Release the lock."""
    os.close(lock_fd)


def replace(directory: Path, name: str, write: Callable[[Path], None]) -> Path:
    """Replace `name` with what `write` creates; move the old one aside and return its new path.

    If it raises, `name` is unchanged. After a crash, `finish_replacement` leaves either the old or the new one.
    """
    unfinished, following = directory / f"{name}.unfinished", directory / f"{name}.next"
    try:
        write(unfinished)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    unfinished.rename(following)
    _sync(directory)
    aside = _copy_path(directory, name)
    (directory / name).rename(aside)
    finish_replacement(directory, name)
    _remove_old_copies(directory, name)
    return aside


def copy_aside(directory: Path, name: str) -> Path:
    """Copy `name`, and return the path of the copy, which is on disk then."""
    unfinished, aside = directory / f"{name}.unfinished", _copy_path(directory, name)
    try:
        shutil.copytree(directory / name, unfinished, copy_function=_copy_file)
        _sync(unfinished)
        unfinished.rename(aside)
        _sync(directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    _remove_old_copies(directory, name)
    return aside


def finish_replacement(directory: Path, name: str) -> None:
    """Complete an interrupted replacement, or remove its remains."""
    shutil.rmtree(directory / f"{name}.unfinished", ignore_errors=True)
    following = directory / f"{name}.next"
    if not following.exists():
        return
    if (directory / name).exists():
        shutil.rmtree(following)
    else:
        following.rename(directory / name)
    _sync(directory)


def _copy_path(directory: Path, name: str) -> Path:
    """Return a path that does not exist, e.g. `leveldb.damaged-20300102T030405.678901Z`."""
    while True:
        path = directory / f"{name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z"
        if not os.path.lexists(path):
            return path


def find_copies(directory: Path) -> tuple[Path, ...]:
    """Return all copies."""
    return tuple(sorted(directory.glob("*.damaged-*")))


def _remove_old_copies(directory: Path, name: str) -> None:
    """Remove all but the newest copies; their names sort by time."""
    for path in sorted(directory.glob(f"{name}.damaged-*"))[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _copy_file(source: str, copy: str) -> None:
    """Copy a file to the disk."""
    shutil.copy2(source, copy)
    _sync(Path(copy))


def _sync(path: Path) -> None:
    """Have the content of a file, or new and renamed files of a directory, survive a crash of the host."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(directory: Path) -> int:
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        holder = os.read(fd, 32).strip()
        os.close(fd)
        raise StateLocked(directory, int(holder) if holder.isdigit() else None) from exc
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # the lock works on a full disk too, only without the owner's process ID
    return fd
