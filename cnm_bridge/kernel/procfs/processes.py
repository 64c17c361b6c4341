# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Processes, told apart from others that have had the same number."""

from pathlib import Path
from typing import Final

__all__ = ["find_start"]

_START: Final = 22 - 4
"""Where the start is among the words behind name and state; proc(5) counts from one."""


def find_start(pid: int, processes: Path) -> int | None:
    """Return when a process has started, in clock ticks since boot; None where there is no such process.

    Args:
        pid: Its number.
        processes: A directory like `/proc`.

    Raises:
        OSError: It is not to be seen.
    """
    try:
        text = (processes / str(pid) / "stat").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *words = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(words[_START])
