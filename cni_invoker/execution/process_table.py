# SPDX-License-Identifier: Apache-2.0
"""What `/proc` says of this host and its processes."""

from functools import cache
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def read_boot_id() -> str:
    """Return the kernel's boot ID. Neither processes nor namespaces survive a reboot."""
    return _BOOT_ID.read_text("ascii").strip()


def start_of(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if there is no such process, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *others = text[text.rindex(b")") + 2 :].split()
    return None if state in {b"Z", b"X"} else int(others[18])


def environment_of(pid: int) -> frozenset[bytes]:
    """Return the environment that a process was started with, as `NAME=value`; empty if it has ended."""
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended"
    return " ".join(word.decode(errors="replace") for word in words if word)
