# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Writes that wait for the disk share the next sync; each has its own outcome."""

import asyncio
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import plyvel
import pytest

from cni_bridge_state import StateUnusable
from cni_bridge_state import db as module
from cni_bridge_state.db import Database


@pytest.fixture(name="db")
def open_database(tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    db = Database.open(tmp_path, lambda _: None)
    yield db
    db.close()


@contextmanager
def busy(db: Database) -> Iterator[None]:
    """Keep the disk busy while the body runs."""
    free = threading.Event()
    db._writer.submit(free.wait)
    try:
        yield
    finally:
        free.set()


def count_transactions(db: Database) -> int:
    """Return how many transactions LevelDB's log has; each was synced.

    The log consists of blocks of pieces: checksum, length, and whether a transaction begins (1, 2) or goes on (3, 4).
    """
    (log,) = (db.path / "leveldb").glob("*.log")
    data, at, begun = log.read_bytes(), 0, 0
    while at + 7 <= len(data):
        length, kind = struct.unpack_from("<HB", data, at + 4)
        begun += kind in {1, 2}
        at += 7 + length
        at += -at % 32768 if -at % 32768 < 7 else 0
    return begun


async def test_writes_that_wait_share_a_sync(tmp_path: Path) -> None:
    """48 writes that come while the disk is busy are one transaction, and all of them are on disk."""
    db = Database.open(tmp_path, lambda _: None)
    async with asyncio.TaskGroup() as tasks:
        with busy(db):
            for number in range(48):
                tasks.create_task(db.write({f"k/{number:02}": b"value"}))
            await asyncio.sleep(0)  # all of them wait
    assert count_transactions(db) == 1
    db.close()
    again = Database.open(db.path, lambda _: None)
    assert [key for key, _ in again.scan("k/")] == [f"k/{number:02}" for number in range(48)]
    again.close()


async def test_a_transaction_is_limited(db: Database) -> None:
    """The event loop ends all writes of one in one turn, so very many become several."""
    async with asyncio.TaskGroup() as tasks:
        with busy(db):
            for number in range(200):
                tasks.create_task(db.write({f"k/{number}": b"value"}))
            await asyncio.sleep(0)  # all of them wait
    assert count_transactions(db) == 4
    assert len(list(db.scan("k/"))) == 200


def test_a_scan_reads_several_batches(db: Database) -> None:
    """In the order of the keys, and without those of another prefix or that of the count."""
    keys = [f"k/{number:04}" for number in range(2 * module._READ_AT_ONCE + 1)]
    db.write_now(dict.fromkeys((*keys, "other/1"), b"value"))
    assert [key for key, _ in db.scan("k/")] == keys
    assert [key for key, _ in db.scan("")] == [*keys, "other/1"]


async def test_the_order_is_kept(db: Database) -> None:
    """The last write of a key counts, and the callers are answered in the order of their calls."""
    answered: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        with busy(db):
            for name, value in (("a", b"1"), ("b", b"1"), ("gone", b"1"), ("a", b"2"), ("gone", None), ("b", None)):
                on_written = lambda name=name, value=value: answered.append(f"{name}{value}")  # noqa: E731
                tasks.create_task(db.write({name: value}, on_written))
            await asyncio.sleep(0)  # all of them wait
    assert answered == ["ab'1'", "bb'1'", "goneb'1'", "ab'2'", "goneNone", "bNone"]
    assert tuple(db.scan("")) == (("a", b"2"),)


async def test_a_cancelled_write_is_not_taken_back(db: Database) -> None:
    """It may have been on its way already; the others of its transaction are not affected."""
    async with asyncio.TaskGroup() as tasks:
        with busy(db):
            first, _ = (tasks.create_task(db.write({name: b"1"})) for name in "ab")
            await asyncio.sleep(0)  # both wait
            first.cancel()
            await asyncio.sleep(0)
    assert tuple(db.scan("")) == (("a", b"1"), ("b", b"1"))


def test_one_write_that_fails_fails_alone(tmp_path: Path) -> None:
    """If a transaction does not fit, those that fit are stored, and nothing of the others is ever read."""
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["-", "-", "StateUnusable", "-", "TypeError", "-", "0", "1", "3", "5"], done.stderr
    db = Database.open(tmp_path, lambda _: None)
    assert tuple(db.scan("")) == (("0", b"old"), ("1", b"small"), ("3", b"small"), ("5", b"small"))
    assert db.findings == ()
    db.close()


def test_a_failed_write_that_is_on_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys have what they had before, and the number of keys is right; also after two that failed."""
    db = Database.open(tmp_path, lambda _: None)
    db.write_now({"changed": b"old", "removed": b"old"})
    put = module._put

    def fail_late(files: plyvel.DB, changes: Mapping[str, bytes | None], *, sync: bool) -> None:
        put(files, changes, sync=sync)
        raise plyvel.IOError(b"cannot sync")

    with monkeypatch.context() as failing:
        failing.setattr(module, "_put", fail_late)
        for value in (b"first", b"second"):
            with pytest.raises(StateUnusable, match="cannot sync"):
                db.write_now({"changed": value, "removed": None, "added": value})
    db.write_now({"other": b"new"})
    db.close()
    again = Database.open(tmp_path, lambda _: None)
    assert tuple(again.scan("")) == (("changed", b"old"), ("other", b"new"), ("removed", b"old"))
    assert again.get("meta/count") == b"3"
    again.close()


def test_a_value_that_is_damaged_while_the_daemon_runs_can_be_replaced(tmp_path: Path) -> None:
    """Another key can be written, too."""
    db = Database.open(tmp_path, lambda _: None)
    db.write_now({"a": b"old", "b": b"old"})
    db.close()
    db = Database.open(tmp_path, lambda _: None)  # which makes a table of what is in the log
    (table,) = (tmp_path / "leveldb").glob("*.ldb")
    with table.open("r+b") as file:
        file.write(b"\xff" * 16)
    with pytest.raises(plyvel.CorruptionError):
        db.get("a")
    db.write_now({"a": b"new", "c": b"new"})
    assert (db.get("a"), db.get("c")) == (b"new", b"new")
    db.close()


def test_a_write_without_a_sync_survives_the_process(tmp_path: Path) -> None:
    """Together with one that is synced, or alone."""
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    db = Database.open(tmp_path, lambda _: None)
    assert tuple(db.scan("")) == (("a", b"2"), ("b", b"1"))
    db.close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from cni_bridge_state.db import Database

async def main():
    db = Database.open(Path(sys.argv[1]), lambda _: None)
    await asyncio.gather(db.write({"a": b"1"}, sync=False), db.write({"b": b"1"}))
    await db.write({"a": b"2"}, sync=False)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
LIMITED = """
import asyncio, resource, signal, sys, threading
from pathlib import Path
from cni_bridge_state.db import Database

async def main():
    db = Database.open(Path(sys.argv[1]), lambda _: None)
    await db.write({"0": b"old"})
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # or parts of compiled modules could stay
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))  # a write ends halfway
    free = threading.Event()
    db._writer.submit(free.wait)
    values = [b"old", b"small", b"x" * 100_000, b"small", "no bytes", b"small"]
    writes = [asyncio.ensure_future(db.write({str(name): value})) for name, value in enumerate(values)]
    await asyncio.sleep(0)
    free.set()
    for outcome in await asyncio.gather(*writes, return_exceptions=True):
        print("-" if outcome is None else type(outcome).__name__)
    print(*(key for key, _ in db.scan("")))
    db.close()

asyncio.run(main())
"""
