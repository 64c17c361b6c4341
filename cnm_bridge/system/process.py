# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""This process: the lock of its run directory, its descriptor limit, its memory use, and how its threads take turns."""

import ctypes
import fcntl
import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_ARENA_MAX: Final = -8
_TRIM_THRESHOLD_BYTES: Final = 128 * 1024
_ARENAS: Final = 2
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_THREAD_TURN_S: Final = 0.0005

_libc: Final = ctypes.CDLL(None)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard limit; return the old one, which plugins get.

    If the kernel refuses, because the hard limit exceeds `fs.nr_open`, that is logged and nothing changes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as exc:  # setrlimit(2) EPERM is a ValueError
        import structlog  # noqa: PLC0415 - it loads asyncio, and this module is imported before the socket is open

        structlog.get_logger().warning("daemon.descriptors_limited", limit=soft, wanted=hard, error=str(exc))
    return soft


def find_plugin_oom_score() -> int | None:
    """Return the score for plugins if this process has a lower one, by which the kernel spares it; else None.

    A plugin that uses up the memory would be spared too, and something else killed. A score that someone has raised
    holds for plugins as well.
    """
    return 0 if int(_OOM_SCORE.read_text("ascii")) < 0 else None


def shorten_thread_turns() -> None:
    """Let a thread compute for half a millisecond, instead of five, while another one waits for the interpreter.

    The event loop waits for its turn after each system call that takes time; to start a plugin it makes some twenty.
    While other threads computed, it was blocked for up to a fifth of a second (measured with ten thousand teardowns
    after a reboot).
    """
    sys.setswitchinterval(_THREAD_TURN_S)


def keep_memory_small() -> None:
    """Limit what glibc keeps of freed memory, and switch garbage collection off until `resume_garbage_collection`.

    Objects created until then are permanent; searching them for garbage takes a tenth of the start-up time. glibc gives
    each short-lived thread its own heap, up to eight per CPU, and never shrinks them. Each time that a larger block is
    freed it also raises the amount of free memory that it keeps, unless that amount is set: Python's table of interned
    strings, a block of one to three megabytes, is replaced now and then. Other C libraries have neither this behaviour
    nor the call.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, _ARENAS)
        _libc.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    gc.disable()


def resume_garbage_collection() -> None:
    """Free the memory that reading the records needed, and switch garbage collection on, without existing objects.

    Otherwise each collection would traverse all records and delay Docker's calls by tens of milliseconds.
    """
    gc.freeze()
    gc.enable()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


@contextmanager
def locked_run_directory(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory while the block runs; the kernel releases it when the process ends.

    What is in the directory without a record is a leftover, so it must belong to one daemon. It is created if missing.

    Raises:
        Refused: Another process holds the lock.
        OSError: The directory cannot be created or opened.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"run directory {path} is used by another cni-bridge; stop that first, or give this one another "
                "--run-dir"
            ) from None
        yield
    finally:
        os.close(descriptor)
