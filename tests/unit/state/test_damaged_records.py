# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A damaged record is removed and reported; all others are kept."""

import os
from pathlib import Path

import plyvel
import pytest

from cni_bridge_state import EndpointRecord, NetworkRecord, StateUnusable
from cni_bridge_state.codec import join_checksum, render_value
from cni_bridge_state.store import Store


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
