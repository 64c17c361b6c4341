# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lock of the run directory: what is in it without a record is a leftover, so it must belong to one daemon."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cnm_bridge.core.errors import Refused


class RunDirectory:
    """The locked run directory of this process.

    Args:
        path: The directory; it is created if it is missing.

    Raises:
        Refused: Another process holds the lock.
        OSError: The directory cannot be created or opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _lock(path)

    @property
    def is_lost(self) -> bool:
        """Whether the directory was removed or replaced. Then the lock keeps no other daemon away."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return True
        return not os.path.samestat(found, os.fstat(self._descriptor))

    def restore(self) -> None:
        """Create the directory again, with its mode, and lock that; errors as at the beginning, and nothing changes."""
        descriptor = _lock(self.path)
        try:  # a plugin may have needed it first
            os.fchmod(descriptor, stat.S_IMODE(os.fstat(self._descriptor).st_mode))
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


@contextmanager
def locked_run_directory(path: Path) -> Iterator[RunDirectory]:
    """Hold the lock of a run directory while the block runs; the kernel releases it when the process ends.

    Errors as in `RunDirectory`.
    """
    directory = RunDirectory(path)
    try:
        yield directory
    finally:
        directory.close()


def _lock(path: Path) -> int:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Refused(
            f"run directory {path} is used by another cni-bridge; stop that first, or give this one another --run-dir"
        ) from None
    return descriptor
