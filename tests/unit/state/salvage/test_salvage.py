# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Damage of every kind, everywhere: what is good stays, nothing is made up, and what is lost is said."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import plyvel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state import Store
from state.salvage.leveldb_log import has_good_frame
from state.salvage.salvage import find_fault, read_good
from tests.unit.state.history import Damage, History, content


def cut(length: int) -> Damage:
    """Keep only the beginning of a file."""
    return lambda data: data[:length]


def flip(bit: int) -> Damage:
    """Turn one bit of a file over."""
    return lambda data: bytes([*data[: bit // 8], data[bit // 8] ^ 1 << bit % 8, *data[bit // 8 + 1 :]])


def log_of(history: History) -> str:
    """The name of the log."""
    (name,) = (name for name in history.files() if name.endswith(".log"))
    return name


def test_what_is_whole_is_read_whole(history: History) -> None:
    """Our own reading of LevelDB's files agrees with LevelDB's."""
    found = read_good(history.directory / "leveldb")
    assert found.losses == ()
    assert {key: value for key, value in found.entries.items() if not key.startswith("meta/")} == history.last
    assert find_fault(history.directory / "leveldb") is None


VALUES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=30), st.integers(1, 3000)),
    st.integers(1, 4).map(lambda number: os.urandom(number * 20_000)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(st.dictionaries(st.binary(max_size=40), st.none() | VALUES, max_size=12), min_size=1, max_size=4))
def test_read_as_leveldb_reads(tmp_path: Path, lives: list[dict[bytes, bytes | None]]) -> None:
    """Records over several blocks, tables of several blocks, all that compression does: as LevelDB itself reads it."""
    where = tmp_path / "db"
    shutil.rmtree(where, ignore_errors=True)
    for life in lives:
        with plyvel.DB(str(where), create_if_missing=True) as db:
            for key, value in life.items():
                if value is None:
                    db.delete(key)
                else:
                    db.put(key, value)
    found = read_good(where)
    with plyvel.DB(str(where)) as db, db.iterator(verify_checksums=True) as entries:
        assert found.entries == {key.decode("utf-8", "backslashreplace"): value for key, value in entries}
    assert found.losses == ()


def test_one_block_of_a_table(tmp_path: Path) -> None:
    """Damage takes a block of a table, whether its index is there or not, and leaves what comes before."""
    values = {f"network/{number:064x}".encode(): os.urandom(1500) for number in range(40)}
    for _ in range(2):  # what the first life wrote, the second puts into a table
        with plyvel.DB(str(tmp_path), create_if_missing=True) as db:
            for key, value in values.items():
                db.put(key, value)
    (path,) = tmp_path.glob("*.ldb")
    for log in tmp_path.glob("*.log"):
        log.unlink()
    data = path.read_bytes()
    for index in (data, data[:-1]):
        for at in range(0, len(data) - 4000, 1501):
            path.write_bytes(flip(at * 8 + 3)(index))
            found = read_good(tmp_path)
            assert found.losses
            assert all(values[key.encode()] == value for key, value in found.entries.items())
            if index is data:
                assert len(found.entries) >= len(values) - 4
            else:
                assert len(found.entries) >= at // 1600 - 3


def damages(history: History) -> Iterator[tuple[str, Damage, str]]:
    """Every length of every file, and single bits all over them."""
    for name, data in history.files().items():
        step = 1 if len(data) < 200 else 101
        for length in range(0, len(data), step):
            yield name, cut(length), f"{name} cut to {length}"
        for length in history.ends if name.endswith(".log") else ():
            yield name, cut(length), f"{name} cut to {length}, between two writes"
        for bit in range(0, len(data) * 8, 7 if step == 1 else 797):
            yield name, flip(bit), f"{name} with bit {bit} turned"


def test_no_damage_goes_unsaid(history: History, tmp_path: Path) -> None:
    """The store opens, holds nothing that was never written, and misses nothing that it does not tell of."""
    written = history.written
    for name, damage, told in damages(history):
        store = Store.open(history.damaged(tmp_path / "copy", name, damage))
        found = content(store)
        store.close()
        assert set(found.items()) <= written, told
        if name == "CURRENT" or name.startswith("MANIFEST"):
            assert found == history.last, told
        if found != history.last and not store.findings:
            # A log that ends between two writes is what it was before the second; nobody can tell.
            original = history.files()[name]
            assert name == log_of(history), told
            assert damage(original) in {original[:end] for end in history.ends}, told
            assert found in history.moments, told
        for finding in store.findings:
            assert any(finding.copy.iterdir()), told


def test_every_bit_of_the_log(history: History) -> None:
    """A bit that has turned takes one write with it, which is named, and nothing else."""
    path = history.directory / "leveldb" / log_of(history)
    original = path.read_bytes()
    writes = len(history.moments)
    last_life = [history.moments[i] for i in range(writes - 6, writes)]
    for bit in range(0, len(original) * 8, 29):
        path.write_bytes(flip(bit)(original))
        found = read_good(path.parent)
        assert found.losses, bit
        lost = frozenset().union(*(loss.ids for loss in found.losses))
        entries = {key: value for key, value in found.entries.items() if not key.startswith("meta/")}
        differing = {key for key in entries.keys() | history.last if entries.get(key) != history.last.get(key)}
        assert len(differing) <= 1, bit
        names = {key.partition("/")[2] for key in differing}
        # Where the bit is in the name itself, and that is there once, the name is lost as well.
        assert names <= lost or any(in_name(original, name, bit) for name in names), bit
        for key in differing & entries.keys():
            assert any(moment.get(key) == entries[key] for moment in last_life), bit


def in_name(data: bytes, name: str, bit: int) -> bool:
    """Tell whether a bit of a file belongs to an occurrence of a name."""
    return any(data.startswith(name.encode(), start) for start in range(bit // 8 - len(name) + 1, bit // 8 + 1))


def test_every_bit_of_the_tables(history: History) -> None:
    """A bit that has turned in a table takes its block with it, or nothing; no value is ever a wrong one."""
    written = history.written
    for name, data in history.files().items():
        if not name.endswith(".ldb"):
            continue
        path = history.directory / "leveldb" / name
        for bit in range(0, len(data) * 8, 19):
            path.write_bytes(flip(bit)(data))
            found = read_good(path.parent).entries
            assert {entry for entry in found.items() if not entry[0].startswith("meta/")} <= written, (name, bit)
        path.write_bytes(data)


def test_every_length_of_the_log(history: History) -> None:
    """What is left of a log is a moment of the past, and its end tells whether a write was cut off."""
    path = history.directory / "leveldb" / log_of(history)
    original = path.read_bytes()
    for length in range(0, len(original), 7):
        path.write_bytes(original[:length])
        found = read_good(path.parent)
        entries = {key: value for key, value in found.entries.items() if not key.startswith("meta/")}
        assert entries in history.moments, length
        assert has_good_frame(original[:length]) == (found.losses == ()), length


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_of_several_files(history: History, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is written over parts of several files, or removed, the store opens and makes nothing up."""
    where = tmp_path / "copy"
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(history.directory, where)
    names = sorted(history.files())
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)):
        path = where / "leveldb" / name
        content_of = path.read_bytes()
        junk = data.draw(st.none() | st.binary(max_size=300))
        if junk is None:
            path.unlink()
        else:
            at = data.draw(st.integers(0, len(content_of)))
            path.write_bytes(content_of[:at] + junk + content_of[at + len(junk) :])
    store = Store.open(where)
    found = content(store)
    store.close()
    assert set(found.items()) <= history.written
    assert store.findings or found in history.moments
