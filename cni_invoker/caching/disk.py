# SPDX-License-Identifier: Apache-2.0
"""Work on the disk: in directories that survive a power failure, with errors of the cache."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cni_invoker.errors import CacheError

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials


def make_durably(directory: Path) -> None:
    """Create a directory and its missing parents; each is on disk before the next one is created."""
    if not directory.is_dir():
        make_durably(directory.parent)
        directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        sync(directory.parent)


def sync(directory: Path) -> None:
    """Flush the entries of a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def reported(doing: str, path: Path) -> Iterator[None]:
    """Turn the body's `OSError` into a `CacheError` that says what could not be done with the path."""
    try:
        yield
    except OSError as exc:
        raise CacheError(path, f"cannot {doing} it: {exc.strerror}") from exc
