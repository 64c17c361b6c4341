# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Salvage after any damage: undamaged records are kept, none is invented, and each loss is reported."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import plyvel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_state.salvage.leveldb_log import has_good_frame
from cni_bridge_state.salvage.salvage import find_fault, read_good
from cni_bridge_state.store import Store
from tests.unit.state.history import Damage, History, content


def cut(length: int) -> Damage:
    """Truncate a file."""
    return lambda data: data[:length]


def flip(bit: int) -> Damage:
    """Invert one bit of a file."""
    return lambda data: bytes([*data[: bit // 8], data[bit // 8] ^ 1 << bit % 8, *data[bit // 8 + 1 :]])


def log_of(history: History) -> str:
    """Return the name of the log."""
    (name,) = (name for name in history.files() if name.endswith(".log"))
    return name


def test_undamaged_files_are_read_completely(history: History) -> None:
    """Our own reader of LevelDB's files agrees with LevelDB."""
    found = read_good(history.directory / "leveldb")
    assert found.losses == ()
    assert {key: value for key, value in found.entries.items() if not key.startswith("meta/")} == history.last
    assert find_fault(history.directory / "leveldb") is None


VALUES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=30), st.integers(1, 3000)),
    st.integers(1, 4).map(lambda number: os.urandom(number * 20_000)),
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sessions=st.lists(st.dictionaries(st.binary(max_size=40), st.none() | VALUES, max_size=12), min_size=1, max_size=4)
)
def test_the_reader_agrees_with_leveldb(tmp_path: Path, sessions: list[dict[bytes, bytes | None]]) -> None:
    """It does so for records over several blocks, tables of several blocks, and every form of compression."""
    where = tmp_path / "db"
    shutil.rmtree(where, ignore_errors=True)
    for session in sessions:
        with plyvel.DB(str(where), create_if_missing=True) as db:
            for key, value in session.items():
                if value is None:
                    db.delete(key)
                else:
                    db.put(key, value)
    found = read_good(where)
    with plyvel.DB(str(where)) as db, db.iterator(verify_checksums=True) as entries:
        assert found.entries == {key.decode("utf-8", "backslashreplace"): value for key, value in entries}
    assert found.losses == ()


@pytest.mark.slow
def test_damage_to_a_table_costs_one_block(tmp_path: Path) -> None:
    """With or without the table's index, other blocks before the damaged one are kept."""
    values = {f"network/{number:064x}".encode(): os.urandom(1500) for number in range(40)}
    for _ in range(2):  # the second session puts into a table what the first wrote
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
    """Yield every file cut to every length, and with single bits inverted."""
    for name, data in history.files().items():
        step = 1 if len(data) < 200 else 101
        for length in range(0, len(data), step):
            yield name, cut(length), f"{name} cut to {length}"
        for length in history.ends if name.endswith(".log") else ():
            yield name, cut(length), f"{name} cut to {length}, between two writes"
        for bit in range(0, len(data) * 8, 7 if step == 1 else 797):
            yield name, flip(bit), f"{name} with bit {bit} inverted"


@pytest.mark.slow
def test_all_damage_is_reported(history: History, tmp_path: Path) -> None:
    """The store opens, contains nothing that was never written, and reports every missing record."""
    written = history.written
    for name, damage, description in damages(history):
        store = Store.open(history.damaged(tmp_path / "copy", name, damage))
        found = content(store)
        store.close()
        assert set(found.items()) <= written, description
        if name == "CURRENT" or name.startswith("MANIFEST"):
            assert found == history.last, description
        if found != history.last and not store.findings:
            # A log that ends between two writes is the log before the second write; the loss cannot be detected.
            original = history.files()[name]
            assert name == log_of(history), description
            assert damage(original) in {original[:end] for end in history.ends}, description
            assert found in history.moments, description
        for finding in store.findings:
            assert any(finding.copy.iterdir()), description


@pytest.mark.slow
def test_an_inverted_bit_in_the_log_costs_one_write(history: History) -> None:
    """That write is named, and no other is lost."""
    path = history.directory / "leveldb" / log_of(history)
    original = path.read_bytes()
    writes = len(history.moments)
    last_session = [history.moments[i] for i in range(writes - 6, writes)]
    for bit in range(0, len(original) * 8, 29):
        path.write_bytes(flip(bit)(original))
        found = read_good(path.parent)
        assert found.losses, bit
        lost = frozenset().union(*(loss.ids for loss in found.losses))
        entries = {key: value for key, value in found.entries.items() if not key.startswith("meta/")}
        differing = {key for key in entries.keys() | history.last if entries.get(key) != history.last.get(key)}
        assert len(differing) <= 1, bit
        names = {key.partition("/")[2] for key in differing}
        # If the bit is in the name itself, which occurs once, the name is lost as well.
        assert names <= lost or any(in_name(original, name, bit) for name in names), bit
        for key in differing & entries.keys():
            assert any(moment.get(key) == entries[key] for moment in last_session), bit


def in_name(data: bytes, name: str, bit: int) -> bool:
    """Return whether a bit of a file belongs to an occurrence of a name."""
    return any(data.startswith(name.encode(), start) for start in range(bit // 8 - len(name) + 1, bit // 8 + 1))


@pytest.mark.slow
def test_an_inverted_bit_in_a_table_costs_at_most_its_block(history: History) -> None:
    """No value is ever wrong."""
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


@pytest.mark.slow
def test_a_truncated_log_is_an_earlier_moment(history: History) -> None:
    """Its end shows whether a write was cut off."""
    path = history.directory / "leveldb" / log_of(history)
    original = path.read_bytes()
    for length in range(0, len(original), 7):
        path.write_bytes(original[:length])
        found = read_good(path.parent)
        entries = {key: value for key, value in found.entries.items() if not key.startswith("meta/")}
        assert entries in history.moments, length
        assert has_good_frame(original[:length]) == (found.losses == ()), length


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_several_files(history: History, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is overwritten or removed, the store opens, and contains nothing that was never written."""
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
