# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Damage that was found, for the operator, and copies of the damaged files.

A few copies of each kind are kept next to the database.
"""

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_KEPT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Damage that was found.

    Attributes:
        what: What was damaged, and how.
        lost: How many records were lost by it, as far as it can be known.
        copy: Path of the damaged copy.
    """

    what: str
    lost: int
    copy: Path

    def __str__(self) -> str:
        records = "1 record was lost" if self.lost == 1 else f"{self.lost} records were lost"
        return f"{self.what}; {records}; what was found is kept in {self.copy}"


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
