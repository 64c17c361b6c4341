# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state directory: its lock, and the crash-safe replacement of the database in it.

| name                        | what it is                                                                |
| --------------------------- | ------------------------------------------------------------------------- |
| `lock`                      | locked by the process whose ID it contains                                |
| `leveldb`                   | the database                                                              |
| `leveldb.unfinished`        | a new database that is being written; worthless after a crash             |
| `leveldb.next`              | a complete new database; becomes `leveldb` once that has been moved aside |
| `leveldb.damaged-TIME`      | a damaged database                                                        |
| `damaged-records-TIME.json` | damaged records                                                           |
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cni_bridge_state.damage import copy_path, remove_old_copies
from cni_bridge_state.errors import StateLocked, StateUnusable

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials
_LOCK_MODE: Final = 0o600


def lock_directory(directory: Path) -> int:
    """Create a private directory and return a descriptor that holds its lock as long as it is open.

    Raises:
        StateLocked: Another process holds the lock.
        StateUnusable: It cannot be created or locked.
    """
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        directory.chmod(_DIRECTORY_MODE)
        return _lock(directory)
    except OSError as exc:
        raise StateUnusable(directory, "open", exc) from exc


def release(lock_fd: int) -> None:
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
    prefix = f"{name}.damaged"
    aside = copy_path(directory, prefix)
    (directory / name).rename(aside)
    finish_replacement(directory, name)
    remove_old_copies(directory, prefix)
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


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
