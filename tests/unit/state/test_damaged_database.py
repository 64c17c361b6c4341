# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Damaged files of the database: the store opens, no record is wrong, and the damage is reported."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_state.directory import Damage as Finding
from cni_bridge_state.store import Store
from tests.unit.state.history import Damage, History, content


def cut(length: int) -> Damage:
    """Truncate a file."""
    return lambda data: data[:length]


def flip(bit: int) -> Damage:
    """Invert one bit of a file."""
    return lambda data: bytes([*data[: bit // 8], data[bit // 8] ^ 1 << bit % 8, *data[bit // 8 + 1 :]])


def damages(history: History) -> Iterator[tuple[str, Damage, str]]:
    """Yield every file cut to many lengths, and with single bits inverted."""
    for name, data in history.files().items():
        step = 1 if len(data) < 200 else 613
        for length in range(0, len(data), step):
            yield name, cut(length), f"{name} cut to {length}"
        for bit in range(0, len(data) * 8, 7 if step == 1 else 4001):
            yield name, flip(bit), f"{name} with bit {bit} inverted"


def recovered_part(damaged: Path) -> dict[str, bytes]:
    """Open the store and return its content; the second start finds no damage, and the same content."""
    first, second = opened(damaged), opened(damaged)
    assert second == (first[0], ())
    return first[0]


def opened(directory: Path) -> tuple[dict[str, bytes], tuple[Finding, ...]]:
    """Open the store; return its content, and what was found damaged."""
    with closing(Store.open(directory)) as store:
        return dict(content(store)), store.findings


@pytest.mark.slow
def test_no_damage_prevents_a_start(history: History, tmp_path: Path) -> None:
    """The store opens, has nothing that was never written, and keeps the damaged files; the repair is done once.

    Only damage to the log may go unnoticed: LevelDB takes it for a write that was cut off when the host lost power.
    """
    for name, damage, description in damages(history):
        damaged = history.damaged(tmp_path / "copy", name, damage)
        store = Store.open(damaged)
        found = content(store)
        store.close()
        assert set(found.items()) <= history.written, description
        if found != history.last and not store.findings:
            assert name.endswith(".log"), description
        for finding in store.findings:
            assert finding.copy.exists(), description
        assert recovered_part(damaged) == found, description


def test_lost_records_are_counted(history: History) -> None:
    """The number of records is in each write, so a table that is gone is missed."""
    for path in (history.directory / "leveldb").glob("*.ldb"):
        path.unlink()
    store = Store.open(history.directory)
    (finding,) = store.findings
    lost = {*history.last} - {*content(store)}
    assert lost
    assert finding.lost == len(lost) + len({"meta/schema"})
    assert f"{finding.lost} records were lost; what was found is kept in" in str(finding)
    store.close()


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_several_files(history: History, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is overwritten or removed, the store opens, and contains nothing that was never written."""
    where = tmp_path / "copy"
    for left in tmp_path.glob("copy*"):
        shutil.rmtree(left)
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
    assert set(recovered_part(where).items()) <= history.written
