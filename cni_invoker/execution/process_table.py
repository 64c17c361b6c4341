# SPDX-License-Identifier: Apache-2.0
"""The processes of this host, read from `/proc`."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process. Equality includes the start time, because the kernel reuses process IDs.

    Attributes:
        pid: The process ID.
        parent: The parent's process ID, 0 if there is none.
        session: Its session ID: the process ID of the session's leader. The kernel does not reuse it while there is a
            process in the session.
        started: When it started, in clock ticks since boot.
        ended: Whether it is a zombie.
    """

    pid: int
    parent: int = field(compare=False)
    session: int
    started: int
    ended: bool = field(compare=False)


def ticks_now() -> int:
    """Return the current time in the unit of `Process.started`."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_S)


@cache
def read_boot_id() -> str:
    """Return the kernel's boot ID. Neither processes nor namespaces survive a reboot."""
    return _BOOT_ID.read_text("ascii").strip()


def find_process(pid: int) -> Process | None:
    """Return a process, None if it does not exist."""
    try:
        text = Path(f"{_PROC}/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, parent, _, session, *others = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid, parent=int(parent), session=int(session), started=int(others[15]), ended=state in {b"Z", b"X"}
    )


def processes() -> Iterator[Process]:
    """Yield all processes."""
    for path in _PROC.iterdir():
        if path.name.isdigit() and (process := find_process(int(path.name))) is not None:
            yield process


def own_sessions() -> Iterator[int]:
    """Yield the sessions of this process and of its ancestors."""
    process = find_process(os.getpid())
    while process is not None:
        yield process.session
        process = find_process(process.parent)


def environment_of(process: Process) -> frozenset[bytes]:
    """Return the initial environment of a process as `NAME=value`; empty if it has ended."""
    try:
        variables = (_PROC / str(process.pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return frozenset()
    return frozenset(variables) if find_process(process.pid) == process else frozenset()


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended"
    return " ".join(word.decode(errors="replace") for word in words if word)
