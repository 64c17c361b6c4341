# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Disks that are really full: a write of the state is stored or refused, and attachments in a cache can be deleted."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state import NetworkId, NetworkRecord, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker import CachedRuntime, FileCache, PluginFailed
from cni_invoker.errors import CacheError
from tests.unit.cni_invoker.cached_attachments import names
from tests.unit.cni_invoker.cached_scene import ATTACHMENT, BANANA, BLUE, Scene

PAGE_BYTES = 4096
INODES = 100


def network(number: int, size: int = 100) -> NetworkRecord:
    """Make a network whose record takes at least `size` bytes."""
    return NetworkRecord(
        id=NetworkId(f"{number:064x}"), configuration="x" * size, name=None, internal=False, options={}
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of few inodes and 1 MiB: LevelDB keeps removed records of 40 kB for a while, uncompressed."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = f"size={256 * PAGE_BYTES},nr_inodes={INODES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


def fill(disk: Path, *, but_bytes: int = 0) -> None:
    """Use up all space except `but_bytes`."""
    filling = disk / "filling"
    fd = os.open(filling, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(fd, b"\0" * PAGE_BYTES)
    os.ftruncate(fd, max(0, os.fstat(fd).st_size - but_bytes))
    os.close(fd)


@pytest.mark.parametrize("size", [1_500, 6_000, 40_000])
async def test_a_write_is_stored_or_refused(disk: Path, size: int) -> None:
    """With any number of free pages a write is either stored, or refused with an error that names the directory."""
    directory = disk / "state"
    expected: dict[str, NetworkRecord] = {}
    store = Store.open(directory)
    errors: list[str] = []
    for number in range(12):
        fill(disk, but_bytes=number * PAGE_BYTES)
        for step in range(3):
            record = network(10 * number + step, size)
            try:
                await store.put_network(record)
            except StateUnusable as exc:
                errors.append(str(exc))
            else:
                expected[record.id] = record
            assert {found.id: found for found in store.networks()} == expected
        for name in list(expected)[:-2]:  # also what is removed needs space
            with suppress(StateUnusable):
                await store.remove_network(NetworkId(name))
                del expected[name]
        assert {found.id: found for found in store.networks()} == expected
        (disk / "filling").unlink()
        await store.put_network(network(1000 + number))  # at once, without a restart
        expected[network(1000 + number).id] = network(1000 + number)
        if number % 3 == 0:
            store.close()
            store = Store.open(directory)
            assert store.findings == ()
        assert {found.id: found for found in store.networks()} == expected
    store.close()
    assert errors
    assert all(f"cannot write the state in {directory}" in text and "No space left" in text for text in errors)


async def test_writes_that_share_a_sync_are_stored_or_refused(disk: Path) -> None:
    """With any number of free pages, each of several writes at once has its own outcome, also after a restart."""
    directory = disk / "state"
    store = Store.open(directory)
    expected: dict[str, NetworkRecord] = {}
    refused = 0
    for pages in range(14):
        fill(disk, but_bytes=pages * PAGE_BYTES)
        records = [network(100 * pages + step, size) for step, size in enumerate((1_500, 6_000, 300, 40_000, 1_500))]
        outcomes = await asyncio.gather(*map(store.put_network, records), return_exceptions=True)
        assert all(outcome is None or isinstance(outcome, StateUnusable) for outcome in outcomes)
        stored = [record for record, outcome in zip(records, outcomes, strict=True) if outcome is None]
        refused += len(records) - len(stored)
        expected |= {record.id: record for record in stored}
        assert {found.id: found for found in store.networks()} == expected
        (disk / "filling").unlink()
        for record in stored:
            await store.remove_network(record.id)
            del expected[record.id]
        await store.put_network(network(pages))
        expected[network(pages).id] = network(pages)
        store.close()
        store = Store.open(directory)
        assert store.findings == ()
        assert {found.id: found for found in store.networks()} == expected
    store.close()
    assert 0 < refused < 14 * 5


def test_no_space_to_open(disk: Path) -> None:
    """A store that cannot be opened because there is no space reports that, and loses nothing."""
    directory = disk / "state"
    Store.open(directory).close()
    fill(disk)
    for _ in range(3):
        with pytest.raises(StateUnusable, match=str(directory)):
            Store.open(directory)
    (disk / "filling").unlink()
    store = Store.open(directory)
    assert store.findings == ()
    store.close()


async def test_no_space_to_repair(disk: Path) -> None:
    """Damage that is found on a full disk stays unchanged, and is repaired when there is space."""
    directory = disk / "state"
    store = Store.open(directory)
    await store.put_network(network(1, 20_000))
    store.close()
    (directory / "leveldb" / "CURRENT").unlink()
    fill(disk)
    before = {path.name: path.read_bytes() for path in (directory / "leveldb").iterdir()}
    with pytest.raises(StateUnusable):
        Store.open(directory)
    assert {path.name: path.read_bytes() for path in (directory / "leveldb").iterdir()} == before
    (disk / "filling").unlink()
    store = Store.open(directory)
    assert store.networks() == (network(1, 20_000),)
    assert len(store.findings) == 1
    store.close()


def use_inodes(disk: Path) -> None:
    """Use up all inodes."""
    with suppress(OSError):
        for number in range(INODES):
            (disk / f"filling-{number}").touch()


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> Scene:
    """The fake plugins, on another disk."""
    return Scene(tmp_path)


async def test_delete_needs_no_free_inode(plugins: Scene, disk: Path) -> None:
    """Every plugin runs, and the record is gone."""
    cache = FileCache(disk)
    runtime = CachedRuntime(plugins.stateless, cache)
    await runtime.add(BLUE, ATTACHMENT)
    use_inodes(disk)
    await runtime.delete(BLUE, ATTACHMENT)
    assert plugins.calls[-2:] == ["second DEL", "first DEL"]
    assert await cache.list() == ()
    assert {name.partition("-")[0] for name in names(disk)} <= {"filling", "lock", "results"}


async def test_add_is_refused(plugins: Scene, disk: Path) -> None:
    """An attachment that cannot be recorded is not added: no plugin runs."""
    await CachedRuntime(plugins.stateless, FileCache(disk)).add(BLUE, ATTACHMENT)
    before = plugins.calls
    use_inodes(disk)
    with pytest.raises(CacheError, match="No space left"):
        await CachedRuntime(plugins.stateless, FileCache(disk)).add(BLUE, replace(ATTACHMENT, container_id="c2"))
    assert plugins.calls == before


async def test_a_failed_delete_keeps_the_attachment(plugins: Scene, disk: Path) -> None:
    """The progress of DEL cannot be stored, but the attachment's record stays, and a repeated delete succeeds."""
    cache = FileCache(disk)
    runtime = CachedRuntime(plugins.stateless, cache)
    await runtime.add(BLUE, ATTACHMENT)
    use_inodes(disk)
    plugins.plugins.install("first", DEL=BANANA)
    with pytest.raises(PluginFailed, match="banana"):
        await runtime.delete(BLUE, ATTACHMENT)
    assert len(await cache.list()) == 1
    plugins.plugins.install("first")
    await runtime.delete(BLUE, ATTACHMENT)
    assert await cache.list() == ()
