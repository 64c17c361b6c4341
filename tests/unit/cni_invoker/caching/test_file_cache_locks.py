# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk, used concurrently."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni_invoker import FileCache
from cni_invoker.errors import CacheError, NetworkBusy
from tests.unit.cni_invoker.cached_attachments import CACHED, KEY, cached


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock that a writer in another process would hold."""
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
async def test_processes_exclude_each_other(
    files: FileCache, tmp_path: Path, network: str, container_id: str | None, waits: bool
) -> None:
    """Operations on a container are serialized on all networks, and GC has a network alone; no lock stays held."""
    other = FileCache(tmp_path)
    async with files.hold("blue", "c1", wait_s=0):
        if waits:
            with pytest.raises(NetworkBusy):
                async with other.hold(network, container_id, wait_s=0):
                    pytest.fail("it must not be entered")
        else:
            async with other.hold(network, container_id, wait_s=0):
                pass
    async with other.hold(network, container_id, wait_s=0):
        pass


async def test_gc_has_a_network_alone(files: FileCache, tmp_path: Path) -> None:
    """No other process can hold the network or a container on it."""
    async with files.hold("blue", None, wait_s=0):
        for container_id in ("c1", None):
            with pytest.raises(NetworkBusy):
                async with FileCache(tmp_path).hold("blue", container_id, wait_s=0):
                    pytest.fail("it must not be entered")


async def test_concurrent_writes_are_all_stored(files: FileCache) -> None:
    """Twenty concurrent puts store twenty attachments."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(files.put(cached("blue", f"c{number:02}")))
    assert [one.attachment.container_id for one in await files.list()] == [f"c{number:02}" for number in range(20)]


async def test_a_cancelled_write_completes_first(files: FileCache, tmp_path: Path) -> None:
    """A cancelled put raises CancelledError only when its write has completed, so that nothing is written later."""
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


async def test_a_write_lock_that_stays_held_is_an_error(files: FileCache, tmp_path: Path) -> None:
    """Put and remove raise CacheError after `lock_s`, and change nothing; reading needs no lock."""
    await files.put(CACHED)
    impatient = FileCache(tmp_path, lock_s=0.05)
    with held(tmp_path / "results"):
        for attempt in (impatient.put(cached("red", "c2")), impatient.remove("blue", KEY)):
            with pytest.raises(CacheError, match=r"another process has had its lock for 0\.05 s"):
                await attempt
        assert await impatient.list() == (CACHED,)
