# SPDX-License-Identifier: Apache-2.0
"""Work on the disk: in a thread, in directories that survive a power failure, with errors of the cache."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from cni_invoker.errors import CacheError

__all__ = ["in_thread", "make_durably", "reported", "sync"]

_DIRECTORY_MODE: Final = 0o700  # a configuration may hold credentials

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; a cancellation waits for its end, so that later work never overlaps it."""
    ended = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ended,))
        raise


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
