# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The database's files as a whole: missing files, interrupted creation and replacement, copies of damaged ones."""

import shutil
from pathlib import Path

import plyvel
import pytest

from cni_bridge_state import UnknownSchema
from cni_bridge_state.codec import SCHEMA_VERSION
from cni_bridge_state.store import Store
from tests.unit.state.history import History, content


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST-*", "*.log", "*.ldb"])
def test_a_missing_file_is_damage(history: History, gone: str) -> None:
    """LevelDB treats a directory without CURRENT as a new database; the store reports damage, and keeps the records."""
    for path in (history.directory / "leveldb").glob(gone):
        path.unlink()
    store = Store.open(history.directory)
    (finding,) = store.findings
    assert "damaged" in str(finding)
    assert finding.copy.is_dir()
    assert set(content(store).items()) <= history.written
    if gone in {"CURRENT", "MANIFEST-*"}:
        assert (content(store), finding.lost) == (history.last, 0)
    store.close()


def test_an_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    """If the first database was not complete when the daemon was killed, nothing is reported."""
    files = tmp_path / "leveldb"
    files.mkdir()
    Store.open(tmp_path).close()
    shutil.rmtree(files)
    files.mkdir()
    (files / "MANIFEST-000001").write_bytes(b"half")
    store = Store.open(tmp_path)
    assert store.findings == ()
    store.close()


def test_damaged_files_of_another_version_are_not_changed(history: History) -> None:
    """That version must repair them."""
    with plyvel.DB(str(history.directory / "leveldb")) as db:
        db.put(b"meta/schema", str(SCHEMA_VERSION + 1).encode())
    (history.directory / "leveldb" / "CURRENT").unlink()
    before = {path: path.read_bytes() for path in sorted(history.directory.rglob("*")) if path.is_file()}
    with pytest.raises(UnknownSchema):
        Store.open(history.directory)
    assert {path: path.read_bytes() for path in sorted(history.directory.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize("leftover", ["leveldb.unfinished", "leveldb.next"])
def test_an_interrupted_replacement_is_discarded(history: History, leftover: str) -> None:
    """If the daemon was killed before the old files were moved away, they are used."""
    (history.directory / leftover).mkdir()
    store = Store.open(history.directory)
    assert content(store) == history.last
    store.close()
    assert not (history.directory / leftover).exists()


def test_an_interrupted_replacement_is_completed(history: History) -> None:
    """If the daemon was killed after the old files were moved away, the new ones take their place."""
    (history.directory / "leveldb").rename(history.directory / "leveldb.next")
    store = Store.open(history.directory)
    assert content(store) == history.last
    store.close()


def test_only_the_newest_copies_are_kept(history: History) -> None:
    """Repeated damage does not fill the disk."""
    copies = []
    for _ in range(7):
        (history.directory / "leveldb" / "CURRENT").unlink()
        store = Store.open(history.directory)
        copies += [finding.copy for finding in store.findings]
        assert content(store) == history.last
        store.close()
    assert sorted(history.directory.glob("leveldb.damaged-*")) == copies[-5:]
