# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The start time of processes."""

import os
from pathlib import Path

import pytest

from cnm_bridge.system.kernel.processes import find_start

STAT = "4711 (a) Z 1 (b) {state} 1 4711 4711 0 -1 4194560 9 9 9 9 9 9 9 9 20 0 7 0 815 117 22 18446744073709551615\n"
"""A process with an unusual name and seven threads, started at 815 (proc(5))."""


def start(directory: Path, state: str) -> int | None:
    """Return the start time of a process in some state."""
    (directory / "4711").mkdir()
    (directory / "4711" / "stat").write_text(STAT.format(state=state), encoding="utf-8")
    return find_start(4711, directory)


@pytest.mark.parametrize("state", ["R", "S", "D", "T", "I"])
def test_a_running_process_has_a_start_time(tmp_path: Path, state: str) -> None:
    """With it a process is distinguished from others with the same process ID."""
    assert start(tmp_path, state) == 815


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_has_no_start_time(tmp_path: Path, state: str) -> None:
    """It has exited, although it was not reaped."""
    assert start(tmp_path, state) is None


def test_a_missing_process_has_no_start_time(tmp_path: Path) -> None:
    """`find_start` returns None."""
    assert find_start(4711, tmp_path) is None


def test_the_start_time_of_this_process() -> None:
    """It is read from the real /proc, and not earlier than that of the first process."""
    ours, first = find_start(os.getpid(), Path("/proc")), find_start(1, Path("/proc"))
    assert ours is not None
    assert ours >= (first or 0)
