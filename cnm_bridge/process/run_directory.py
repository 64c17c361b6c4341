# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lock of the run directory: what is in it without a record is a leftover, so it must belong to one daemon."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cnm_bridge.errors import Refused

__all__ = ["locked_run_directory"]


@contextmanager
def locked_run_directory(directory: Path) -> Iterator[None]:
    """Create a run directory, and hold its lock while the block runs; the kernel releases it when the process ends.

    Raises:
        Refused: Another process holds the lock.
        OSError: The directory cannot be created or opened.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"run directory {directory} is used by another cni-bridge; stop that first, or give this one "
                "another --run-dir"
            ) from None
        yield
    finally:
        os.close(descriptor)
