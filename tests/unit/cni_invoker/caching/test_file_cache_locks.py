# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk, used by many at once."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni_invoker import (
    CacheError,
    FileCache,
    NetworkBusy,
)
from tests.unit.cni_invoker.cached_attachments import CACHED, KEY, cached, names


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock that a writer in another process would have."""
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("network", "container_id", "waits"),
    [("blue", "c1", True), ("red", "c1", True), ("blue", "c2", False), ("blue", None, True), ("red", None, False)],
)
async def test_processes_are_kept_apart(
    files: FileCache, tmp_path: Path, network: str, container_id: str | None, waits: bool
) -> None:
    """On a container they work one by one, whatever the network, and GC on a network alone; nothing is left behind."""
    other = FileCache(tmp_path)
    async with files.hold("blue", "c1", wait_s=0):
        if waits:
            with pytest.raises(NetworkBusy):
                async with other.hold(network, container_id, wait_s=0):
                    pytest.fail("it should wait")
        else:
            async with other.hold(network, container_id, wait_s=0):
                pass
    async with other.hold(network, container_id, wait_s=0):
        pass
    assert set(names(tmp_path / "locks")) == {"blue", network}


async def test_gc_keeps_others_off(files: FileCache, tmp_path: Path) -> None:
    """Nobody works on a network while another process has it alone."""
    async with files.hold("blue", None, wait_s=0):
        for container_id in ("c1", None):
            with pytest.raises(NetworkBusy):
                async with FileCache(tmp_path).hold("blue", container_id, wait_s=0):
                    pytest.fail("it should wait")


async def test_many_at_once(files: FileCache) -> None:
    """Writers do not disturb one another."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(files.put(cached("blue", f"c{number:02}")))
    assert [one.attachment.container_id for one in await files.list()] == [f"c{number:02}" for number in range(20)]


async def test_cancellation_waits_for_the_write(files: FileCache, tmp_path: Path) -> None:
    """What is cancelled has happened or not when the cancellation arrives; nothing follows later."""
    await files.put(cached("red", "c2"))
    with held(tmp_path / "results"):
        task = asyncio.get_running_loop().create_task(files.put(CACHED))
        for _ in range(2):
            await asyncio.wait((task,), timeout=0.1)
            task.cancel()
        assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await files.find("blue", KEY) == CACHED


async def test_a_lock_that_is_not_given_back(files: FileCache, tmp_path: Path) -> None:
    """It is an error after a while, and nothing has changed; reading needs no lock."""
    await files.put(CACHED)
    impatient = FileCache(tmp_path, lock_s=0.05)
    with held(tmp_path / "results"):
        for attempt in (impatient.put(cached("red", "c2")), impatient.remove("blue", KEY)):
            with pytest.raises(CacheError, match=r"another process has had its lock for 0\.05 s"):
                await attempt
        assert await impatient.list() == (CACHED,)
