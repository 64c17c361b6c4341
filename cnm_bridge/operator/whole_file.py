# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Writes files that are complete or do not exist."""

import os
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused

_PRIVATE: Final = 0o600


def write_whole(file: Path, content: bytes, *, mode: int = _PRIVATE, replaces: bool = True) -> None:
    """Write a file at once and as a whole.

    Args:
        file: The file.
        content: Its content.
        mode: Its permissions, whatever the umask is; by default its owner's only.
        replaces: Whether a file that exists is replaced.

    Raises:
        Refused: It exists, or cannot be written, e.g. because the disk is full; nothing is left of it, and a former
            file stays.
    """
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as stream:
                os.fchmod(fd, mode)
                stream.write(content)
                stream.flush()
                os.fsync(fd)
            if replaces:
                unfinished.replace(file)
            else:
                os.link(unfinished, file)  # a rename would replace a file that was made meanwhile
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as exc:
        raise Refused(f"cannot write {file}: {exc.strerror}") from exc
