# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The file of a network configuration list."""

import os
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused

_MODE: Final = 0o644
_SUFFIX: Final = ".conflist"
_FURTHER: Final = "*.conf"


def list_path(directory: Path, name: str) -> Path:
    """Return the path of a new list."""
    return directory / f"{name}{_SUFFIX}"


def find_taken_paths(file: Path) -> frozenset[Path]:
    """Return what exists of a new list's paths: its file, and the folder from which plugins would be added to it."""
    folder = file.with_suffix("")
    taken = {file} if file.exists() or file.is_symlink() else set()
    return frozenset(taken | ({folder} if any(folder.glob(_FURTHER)) else set()))


def write_list(file: Path, text: str) -> None:
    """Write a new list, which every user may read, at once and as a whole; make its directory if it is missing.

    Raises:
        Refused: The file exists, or cannot be written; nothing is left of it.
    """
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                os.fchmod(fd, _MODE)  # whatever the umask is
                stream.write(text)
                stream.flush()
                os.fsync(fd)
            os.link(unfinished, file)  # a rename would replace a file that was made meanwhile
        finally:
            unfinished.unlink()
    except OSError as exc:
        raise Refused(f"cannot write {file}: {exc.strerror}; nothing was changed") from exc
