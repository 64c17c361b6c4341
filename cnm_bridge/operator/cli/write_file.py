# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Writes a file as a whole, readable by its owner only."""

import os
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused

__all__ = ["write_file"]

_MODE: Final = 0o600


def write_file(file: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only.

    Raises:
        Refused: It cannot be written, e.g. because the disk is full; nothing is left of it, and a former file stays.
    """
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except OSError as exc:
        unfinished.unlink(missing_ok=True)
        raise Refused(f"cannot write {file}: {exc}") from exc
