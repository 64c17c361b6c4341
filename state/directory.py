# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state directory: who has it, and how the database in it is replaced by another, whatever moment we are killed at.

| name                  | what it is                                                             |
| --------------------- | ---------------------------------------------------------------------- |
| `lock`                | locked by the process whose ID it holds                                |
| `leveldb`             | the database                                                           |
| `leveldb.unfinished`  | a new one, being written; worth nothing                                |
| `leveldb.next`        | a new one, whole: it is `leveldb` from the moment that has gone aside  |
| `leveldb.damaged-TIME`| one that was damaged                                                   |
| `damaged-records-TIME.json` | records that did not fit their schema                            |
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from state.errors import StateLocked, StateUnusable
from state.salvage.copies import copy_path, remove_old_copies

__all__ = ["finish_replacement", "lock_directory", "release", "replace"]

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials
_LOCK_MODE: Final = 0o600


def lock_directory(directory: Path) -> int:
    """Make a directory private and return a descriptor that holds its lock for as long as it is open.

    Raises:
        StateLocked: Another process has it.
        StateUnusable: It cannot be made or locked.
    """
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        directory.chmod(_DIRECTORY_MODE)
        return _lock(directory)
    except OSError as exc:
        raise StateUnusable(directory, "open", exc) from exc


def release(lock_fd: int) -> None:
    """Give a directory free."""
    os.close(lock_fd)


def replace(directory: Path, name: str, write: Callable[[Path], None]) -> Path:
    """Put what `write` makes in the place of `name`, which goes aside; return where it is now.

    When it raises, `name` is as it was. A process that is killed in the middle leaves the one or the other, at the
    latest when `finish_replacement` has been called.
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
    """Finish a replacement that was cut off, or remove what there is of it."""
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
        pass  # the lock holds on a full disk too; only its owner cannot be named
    return fd
