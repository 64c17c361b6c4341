# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Disks that are really full: a write of the state is stored or refused."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cni_bridge_state import NetworkId, NetworkRecord, StateUnusable
from cni_bridge_state.store import Store
from tests.records import network_record

PAGE_BYTES = 4096


def network(number: int, size: int = 100) -> NetworkRecord:
    """Make a network whose record takes at least `size` bytes."""
    return network_record(f"{number:064x}", configuration="x" * size, name=None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 1 MiB: LevelDB keeps removed records of 40 kB for a while, uncompressed."""
    mount = tmp_path / "disk"
    mount.mkdir()
    options = f"size={256 * PAGE_BYTES}"
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
