# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Damaged records, databases and directories are reported and repaired; all other records are kept."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import plyvel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_state import EndpointRecord, NetworkRecord, StateUnusable, UnknownSchema
from cni_bridge_state.codec import SCHEMA_VERSION, join_checksum, render_value
from cni_bridge_state.directory import Damage as Finding
from cni_bridge_state.store import Store
from tests.unit.state.history import Damage, History, content


def put(directory: Path, key: str, value: bytes) -> None:
    """Write a value into the database without the store."""
    with plyvel.DB(str(directory / "leveldb"), create_if_missing=True) as db:
        db.put(key.encode(), value)


@pytest.fixture
async def directory(tmp_path: Path, network: NetworkRecord, endpoint: EndpointRecord) -> Path:
    """A state directory with two valid records."""
    store = Store.open(tmp_path)
    await store.put_network(network)
    await store.put_endpoint(endpoint)
    store.close()
    return tmp_path


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("network/n1", b"[]", "its checksum is wrong"),
        ("endpoint/e1", b"[]", "its checksum is wrong"),
        ("endpoint/e1", b"\xff\xfe", "its checksum is wrong"),
        ("endpoint/e1", b"", "its checksum is wrong"),
        ("endpoint/e1", join_checksum(b""), "Expecting value"),
        ("endpoint/e1", join_checksum(b"\xff\xfe"), "not UTF-8"),
        ("endpoint/e1", join_checksum(b"{}"), "id is missing"),
        ("endpoint/e1", join_checksum(b'{"id": "e1"}'), "networkId is missing"),
        ("network/n1", join_checksum(b"[]"), "must be an object"),
        ("network/n1", join_checksum(b'{"id": 7}'), "id must be a string"),
        ("network/n1", join_checksum(b'{"id": "n1", "configuration": null}'), "name is missing"),
    ],
)
def test_a_damaged_record_is_set_aside(directory: Path, key: str, value: bytes, reason: str) -> None:
    """A copy of the database is kept, and the record is removed, and reported once."""
    put(directory, key, value)
    store = Store.open(directory)
    (finding,) = store.findings
    assert key in str(finding)
    assert reason in finding.what
    assert finding.lost == 1
    assert (len(store.networks()), len(store.endpoints())) == (1, 1)
    store.close()
    with plyvel.DB(str(finding.copy)) as db:
        assert db.get(key.encode()) == value
    store = Store.open(directory)
    assert store.findings == ()
    store.close()


def test_a_record_under_another_key(directory: Path, network: NetworkRecord, endpoint: EndpointRecord) -> None:
    """The ID in a record must be that of its key; otherwise it is set aside."""
    put(directory, "network/" + "b" * 64, render_value(network))
    put(directory, "endpoint/" + "f" * 64, render_value(endpoint))
    store = Store.open(directory)
    assert [finding.what.split()[1] for finding in store.findings] == [
        "network/" + "b" * 64 + ":",
        "endpoint/" + "f" * 64 + ":",
    ]
    assert store.networks() == (network,)
    assert store.endpoints() == (endpoint,)
    store.close()


def test_a_copy_is_complete_on_disk_before_it_has_its_name(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its files and the two directories are waited for: another file system of the host may hang."""
    synced: list[str] = []
    fsync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr("os.fsync", recorded)
    monkeypatch.setattr("os.sync", lambda: pytest.fail("all file systems are waited for"))
    put(directory, "network/n1", b"[]")
    store = Store.open(directory)
    store.close()
    (finding,) = store.findings
    unfinished = directory / "leveldb.unfinished"
    assert sorted(synced[:-2]) == sorted(f"{unfinished}/{path.name}" for path in finding.copy.iterdir())
    assert synced[-2:] == [str(unfinished), str(directory)]


def test_an_interrupted_copy_is_removed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no name of a copy, and the record stays for the next start."""
    put(directory, "network/n1", b"[]")

    def end(fd: int) -> None:
        raise OSError(fd)

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", end)
        with pytest.raises(StateUnusable, match="set damaged records aside"):
            Store.open(directory)
    assert [path.name for path in directory.glob("leveldb*")] == ["leveldb"]


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
    """The store opens, has nothing that was never written, and keeps the damaged files; the repair is done once."""
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
