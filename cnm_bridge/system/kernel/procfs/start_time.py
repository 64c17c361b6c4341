# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the start times of processes, which distinguish processes that have had the same ID."""

from pathlib import Path
from typing import Final

__all__ = ["find_start"]

_START: Final = 22 - 4
"""Index of the start time in the fields after process name and state; proc(5) counts from one."""


def find_start(pid: int, processes: Path) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it does not exist or has ended.

    Args:
        pid: Its process ID.
        processes: A directory like `/proc`.

    Raises:
        OSError: The process directory cannot be read.
    """
    try:
        with open(f"{processes}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - each call of Docker needs it
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *words = text.rpartition(b")")[2].split()
    return None if state in b"ZX" else int(words[_START])
