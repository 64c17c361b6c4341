# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's own limits and memory, and the start time of processes."""

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnm_bridge.system import process
from cnm_bridge.system.kernel.processes import find_start
from cnm_bridge.system.process import (
    find_plugin_oom_score,
    keep_memory_small,
    raise_descriptor_limit,
    resume_garbage_collection,
    shorten_thread_turns,
)


@pytest.fixture(name="limits")
def lower_limit() -> Iterator[tuple[int, int]]:
    """Set a soft limit below the hard limit, and restore both afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, hard - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    yield lower, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_limit_is_raised_to_the_hard_limit(limits: tuple[int, int]) -> None:
    """The previous soft limit, which plugins get, is returned."""
    soft, hard = limits
    assert raise_descriptor_limit() == soft
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_limit_that_cannot_be_raised(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard limit may exceed `fs.nr_open` if that was lowered later; the daemon starts with the limit it has."""
    too_high = int(Path("/proc/sys/fs/nr_open").read_text()) + 1
    with monkeypatch.context() as earlier:
        earlier.setattr(resource, "getrlimit", lambda _: (limits[0], too_high))
        assert raise_descriptor_limit() == limits[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


@pytest.mark.parametrize(("own", "of_plugins"), [("-500", 0), ("0", None), ("300", None)])
def test_plugins_are_not_spared_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, of_plugins: int | None
) -> None:
    """The unit spares the daemon; its plugins get the usual score."""
    (tmp_path / "score").write_text(f"{own}\n")
    monkeypatch.setattr(process, "_OOM_SCORE", tmp_path / "score")
    assert find_plugin_oom_score() == of_plugins


def test_garbage_collection_starts_after_the_records_are_read() -> None:
    """Objects that exist by then are frozen: they are never examined again."""
    try:
        keep_memory_small()
        assert not gc.isenabled()
        resume_garbage_collection()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.enable()


def test_freed_memory_is_returned_also_after_a_large_block() -> None:
    """Freeing a block that glibc had mapped by itself would otherwise raise what it keeps to twice the block's size.

    The first round uses up the small free pieces that importing has left: an object that finds none takes its memory
    from the end of the heap, and keeps all below it.
    """
    program = """
import os
from cnm_bridge.system.process import keep_memory_small

def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

keep_memory_small()
block = bytearray(8 << 20)
del block
for is_measured in (False, True):
    before = resident()
    blocks = [bytearray(50_000) for _ in range(1000)]
    assert not is_measured or resident() - before > 40_000_000
    del blocks
print(resident() - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 1_000_000


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


def test_threads_that_compute_take_short_turns() -> None:
    """The event loop waits for a turn after each system call that takes time."""
    before = sys.getswitchinterval()
    try:
        shorten_thread_turns()
        assert sys.getswitchinterval() < before / 5
    finally:
        sys.setswitchinterval(before)
