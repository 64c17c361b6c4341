# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and syncs directories so that they survive a power failure."""

import os
from pathlib import Path
from typing import Final

__all__ = ["make_durably", "sync"]

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials


def make_durably(directory: Path) -> None:
    """Create a directory and its missing parents; each is on disk before the next one is created."""
    if not directory.is_dir():
        make_durably(directory.parent)
        directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        sync(directory.parent)


def sync(directory: Path) -> None:
    """Flush the entries of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
