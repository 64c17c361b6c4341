# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The database's files as a whole: missing ones, beginnings and replacements that were cut off, copies of damage."""

import shutil
from pathlib import Path

import plyvel
import pytest

from state import SCHEMA_VERSION, SchemaTooNew, Store
from tests.unit.state.history import History, content


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST-*", "*.log", "*.ldb"])
def test_a_missing_file_is_no_new_beginning(history: History, gone: str) -> None:
    """LevelDB takes a directory without CURRENT for a new database; we do not."""
    for path in (history.directory / "leveldb").glob(gone):
        path.unlink()
    store = Store.open(history.directory)
    (finding,) = store.findings
    assert "damaged" in str(finding)
    assert finding.copy.is_dir()
    assert set(content(store).items()) <= history.written
    if gone in {"CURRENT", "MANIFEST-*"}:
        assert content(store) == history.last
    store.close()


def test_a_beginning_that_was_cut_off_is_one(tmp_path: Path) -> None:
    """Killed while the very first database was made: there is nothing to tell of."""
    files = tmp_path / "leveldb"
    files.mkdir()
    Store.open(tmp_path).close()
    shutil.rmtree(files)
    files.mkdir()
    (files / "MANIFEST-000001").write_bytes(b"half")
    store = Store.open(tmp_path)
    assert store.findings == ()
    store.close()


def test_a_newer_schema_is_not_even_repaired(history: History) -> None:
    """Damaged files of a newer version are left as they are, for it to repair them."""
    with plyvel.DB(str(history.directory / "leveldb")) as db:
        db.put(b"meta/schema", str(SCHEMA_VERSION + 1).encode())
    (history.directory / "leveldb" / "CURRENT").unlink()
    before = {path: path.read_bytes() for path in sorted(history.directory.rglob("*")) if path.is_file()}
    with pytest.raises(SchemaTooNew):
        Store.open(history.directory)
    assert {path: path.read_bytes() for path in sorted(history.directory.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize("leftover", ["leveldb.unfinished", "leveldb.next"])
def test_a_replacement_that_was_cut_off(history: History, leftover: str) -> None:
    """Killed while new files were made: the old ones count as long as they are there."""
    (history.directory / leftover).mkdir()
    store = Store.open(history.directory)
    assert content(store) == history.last
    store.close()
    assert not (history.directory / leftover).exists()


def test_a_replacement_is_finished(history: History) -> None:
    """Killed when the old files had gone aside: the new ones take their place."""
    (history.directory / "leveldb").rename(history.directory / "leveldb.next")
    store = Store.open(history.directory)
    assert content(store) == history.last
    store.close()


def test_only_the_newest_copies_are_kept(history: History) -> None:
    """Damage that comes again and again does not fill the disk."""
    copies = []
    for _ in range(7):
        (history.directory / "leveldb" / "CURRENT").unlink()
        store = Store.open(history.directory)
        copies += [finding.copy for finding in store.findings]
        assert content(store) == history.last
        store.close()
    assert sorted(history.directory.glob("leveldb.damaged-*")) == copies[-5:]
