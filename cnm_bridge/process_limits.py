# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What this process may have open, and what memory it keeps."""

import ctypes
import gc
import resource
from typing import Final

import structlog

__all__ = ["keep_memory_small", "raise_descriptor_limit", "settle_memory"]

log = structlog.get_logger()

_M_ARENA_MAX: Final = -8  # malloc.h
_ARENAS: Final = 2

_libc: Final = ctypes.CDLL(None)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one; return what it was, which is what plugins get.

    Where the kernel refuses, because the hard limit is above `fs.nr_open`, that is logged and nothing changes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as exc:  # setrlimit(2) EPERM is a ValueError
        log.warning("daemon.descriptors_limited", limit=soft, wanted=hard, error=str(exc))
    return soft


def keep_memory_small() -> None:
    """Let all threads share two heaps, and collect no garbage until `settle_memory`.

    Objects that are imported and read until then are permanent: searching them for garbage takes a tenth of the start.

    glibc gives each short-lived thread its own heap, up to eight per CPU, and never shrinks them. Other C libraries
    lack the call and do not do that.
    """
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(_M_ARENA_MAX, _ARENAS)
    gc.disable()


def settle_memory() -> None:
    """Give back what reading the records needed, exempt all that is there from garbage collection, and let that begin.

    Going through ten thousand records would keep Docker's calls waiting for tens of milliseconds each time.
    """
    gc.freeze()
    gc.enable()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)
