# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Processes and their starts."""

import os
from pathlib import Path

import pytest

from cnm_bridge.kernel.procfs.start_time import find_start

STAT = "4711 (a) Z 1 (b) {state} 1 4711 4711 0 -1 4194560 9 9 9 9 9 9 9 9 20 0 7 0 815 117 22 18446744073709551615\n"
"""A process of a strange name, with seven threads, that started at 815 (proc(5))."""


def start(directory: Path, state: str) -> int | None:
    """Give the start of a process in some state."""
    (directory / "4711").mkdir()
    (directory / "4711" / "stat").write_text(STAT.format(state=state), encoding="utf-8")
    return find_start(4711, directory)


@pytest.mark.parametrize("state", ["R", "S", "D", "T", "I"])
def test_one_that_lives(tmp_path: Path, state: str) -> None:
    """The start tells it from others that had its number, or will have it."""
    assert start(tmp_path, state) == 815


@pytest.mark.parametrize("state", ["Z", "X"])
def test_one_that_nobody_has_waited_for(tmp_path: Path, state: str) -> None:
    """It has ended."""
    assert start(tmp_path, state) is None


def test_none(tmp_path: Path) -> None:
    """Nor is there a start."""
    assert find_start(4711, tmp_path) is None


def test_our_own() -> None:
    """As the kernel really writes it: later than that of the first process."""
    ours, first = find_start(os.getpid(), Path("/proc")), find_start(1, Path("/proc"))
    assert ours is not None
    assert ours >= (first or 0)
