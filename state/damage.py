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
        lost: IDs of networks and endpoints that were lost; some may have been removed before.
        outdated: IDs of networks and endpoints whose records may be outdated.
        copy: Path of the damaged copy.
    """

    what: str
    lost: tuple[str, ...]
    outdated: tuple[str, ...]
    copy: Path

    def __str__(self) -> str:
        text = f"{self.what}; what was found is kept in {self.copy}"
        if self.lost:
            text += f"; lost, unless removed before: {', '.join(self.lost)}"
        if self.outdated:
            text += f"; perhaps of an earlier moment: {', '.join(self.outdated)}"
        return text


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
