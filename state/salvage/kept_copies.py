# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Copies of damaged files, kept next to the database for inspection; a few of each kind."""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_KEPT: Final = 5


def copy_path(directory: Path, prefix: str, suffix: str = "") -> Path:
    """Return a path that does not exist, e.g. `leveldb.damaged-20300102T030405.678901Z`."""
    while True:
        path = directory / f"{prefix}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z{suffix}"
        if not os.path.lexists(path):
            return path


def find_copies(directory: Path) -> tuple[Path, ...]:
    """Return all copies, of any kind."""
    return tuple(sorted((*directory.glob("*.damaged-*"), *directory.glob("damaged-records-*"))))


def remove_old_copies(directory: Path, prefix: str) -> None:
    """Remove all but the newest copies of a kind; their names sort by time."""
    for path in sorted(directory.glob(f"{prefix}-*"))[:-_KEPT]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
