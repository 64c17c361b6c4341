# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""State of earlier versions is migrated, except for damaged records."""

from pathlib import Path
from typing import Final

import plyvel
import pytest

from cni_bridge_spec import JsonObject, as_object, get_object, get_objects, load_validator, parse_json
from cni_bridge_state import ImportRefused, Phase, ProcessRecord
from cni_bridge_state.codec import document_of
from cni_bridge_state.migrations import MIGRATIONS, SCHEMA_VERSION, migrate
from cni_bridge_state.store import Store

FIXTURES: Final = Path(__file__).with_name("version_1")
"""The records as version 1 stored them, one file for each."""

KEYS: Final = {
    f"network/{'a' * 64}": "network.json",
    f"endpoint/{'e' * 64}": "joined.json",
    f"endpoint/{'f' * 64}": "pending.json",
}


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """A state directory of version 1."""
    Store.open(tmp_path).close()
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"meta/schema", b"1")
        for key, file in KEYS.items():
            db.put(key.encode(), (FIXTURES / file).read_bytes())
    return tmp_path


VERSION_2: Final = Path(__file__).with_name("version_2")
"""The same for version 2."""


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    """A state directory of version 2."""
    Store.open(tmp_path).close()
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"meta/schema", b"2")
        db.put(f"network/{'a' * 64}".encode(), (VERSION_2 / "network.json").read_bytes())
        db.put(f"endpoint/{'e' * 64}".encode(), (VERSION_2 / "deleting.json").read_bytes())
    return tmp_path


def stored(directory: Path) -> dict[bytes, bytes]:
    """Return all entries of a state directory."""
    with plyvel.DB(str(directory / "leveldb")) as db:
        return dict(db)


def test_version_1_is_migrated(version_1: Path) -> None:
    """Fields that version 1 did not have are empty, and addresses come from result and snapshot."""
    store = Store.open(version_1)
    (network,) = store.networks()
    joined, pending = store.endpoints()
    found = store.endpoints_with_address(["10.1.2.3"])
    store.close()
    assert (network.configuration, network.internal) == ("blue", False)
    assert (joined.phase, joined.sandbox_key) == (Phase.JOINED, "/var/run/docker/netns/0123456789ab")
    assert joined.snapshot is not None
    assert joined.snapshot["rules"] == joined.snapshot["neighbours"] == joined.snapshot["sysctls"] == []
    assert joined.snapshot["qdisc"] is None
    assert get_object(joined.snapshot, "link")["mac"] == "ee:77:5c:0d:4a:3b"
    assert joined.addresses == ("10.1.2.3",)
    assert found == (joined,)
    assert (pending.phase, pending.snapshot) == (Phase.PENDING, None)
    assert stored(version_1)[b"meta/schema"] == str(SCHEMA_VERSION).encode()


def test_migrated_records_fit_their_schemas(version_1: Path) -> None:
    """The migrated records are valid, and a second start changes nothing."""
    Store.open(version_1).close()
    for key, value in stored(version_1).items():
        kind = key.decode().partition("/")[0]
        if kind != "meta":
            load_validator(f"state/{kind}")(document_of(key.decode(), value))
    Store.open(version_1).close()


def test_version_2_is_migrated(version_2: Path) -> None:
    """A pending teardown is kept, and none of its plugins is known to have completed DEL."""
    store = Store.open(version_2)
    (network,) = store.networks()
    (deleting,) = store.endpoints()
    store.close()
    assert (network.name, len(network.pools)) == ("blue", 1)
    assert (deleting.phase, deleting.added_plugins, deleting.deleted) == (Phase.DELETING, 1, ())
    assert (deleting.ifname_prefix, deleting.caller) == ("lan", ProcessRecord(pid=4711, started=99))
    for key, value in stored(version_2).items():
        kind = key.decode().partition("/")[0]
        if kind != "meta":
            load_validator(f"state/{kind}")(document_of(key.decode(), value))


@pytest.mark.parametrize("damage", [b"no JSON", b"[]", b'{"snapshot": 7}'])
def test_a_damaged_record_does_not_stop_the_migration(version_1: Path, damage: bytes) -> None:
    """It is set aside like a damaged record of this version; the others are migrated."""
    key = f"endpoint/{'f' * 64}"
    with plyvel.DB(str(version_1 / "leveldb")) as db:
        db.put(key.encode(), damage)
    store = Store.open(version_1)
    assert [record.id for record in store.endpoints()] == ["e" * 64]
    assert store.findings
    store.close()


def exported_by_version_1() -> JsonObject:
    """Return the export of a version 1 state."""
    records = {key: parse_json((FIXTURES / file).read_bytes()) for key, file in KEYS.items()}
    return {
        "schema": 1,
        "meta": {"meta/engine": "AAAA"},
        "networks": [record for key, record in records.items() if key.startswith("network/")],
        "endpoints": [record for key, record in records.items() if key.startswith("endpoint/")],
    }


def test_an_export_of_version_1_is_imported(version_1: Path, tmp_path: Path) -> None:
    """The import gives the same records as opening the state of version 1."""
    migrated = Store.open(version_1)
    imported = Store.open(tmp_path / "other")
    imported.import_document(exported_by_version_1())
    assert imported.networks() == migrated.networks()
    assert imported.endpoints() == migrated.endpoints()
    assert imported.engine_identity() == "AAAA"
    migrated.close()
    imported.close()


def test_a_damaged_export_is_rejected_as_a_whole(tmp_path: Path) -> None:
    """The error names the damaged record, and nothing is imported."""
    store = Store.open(tmp_path)
    key = f"endpoint/{'f' * 64}"
    document: JsonObject = {**exported_by_version_1(), "endpoints": [{"id": "f" * 64, "snapshot": 7}]}
    with pytest.raises(ImportRefused, match=f"record {key} cannot be imported"):
        store.import_document(document)
    assert store.networks() == ()
    store.close()


def test_every_version_has_a_migration() -> None:
    """Each earlier schema version has a step to the next."""
    assert set(MIGRATIONS) == set(range(1, SCHEMA_VERSION))


def test_the_current_version_is_not_migrated() -> None:
    """A document of the current version is returned unchanged."""
    assert migrate("endpoint/e", {"snapshot": None}, SCHEMA_VERSION) == {"snapshot": None}


def test_an_export_of_version_2_is_imported(tmp_path: Path) -> None:
    """The file, written by version 2, has a network, endpoints in all phases, and the engine's identity."""
    store = Store.open(tmp_path)
    store.import_document(parse_json((VERSION_2 / "export.json").read_bytes()))
    (network,), endpoints = store.networks(), {record.phase: record for record in store.endpoints()}
    assert store.engine_identity() == "AAAA:BBBB"
    assert store.export_document()["schema"] == SCHEMA_VERSION
    store.close()
    assert (network.configuration, network.name, len(network.pools)) == ("blue", "docker-blue", 1)
    assert endpoints.keys() == set(Phase) - {Phase.JOINING}  # of modes that version 2 did not have
    joined = endpoints[Phase.JOINED]
    assert joined.addresses == ("10.1.2.3",)
    assert joined.attachment.capability_args["portMappings"] == [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "0.0.0.0"}
    ]
    assert joined.result is not None
    assert joined.result["routes"] == [{"dst": "0.0.0.0/0"}]
    assert all(record.deleted == () for record in endpoints.values())
    assert all(str(record.attachment.id) == str(record.id) for record in endpoints.values())  # what CNI received at ADD
    assert endpoints[Phase.PENDING].addresses == ()


def test_addresses_are_added_to_endpoints_of_version_2() -> None:
    """They are those of the result and those of the link, each once, without link-local ones."""
    exported = parse_json((VERSION_2 / "export.json").read_bytes())
    (joined,) = (one for one in get_objects(as_object(exported, "export"), "endpoints") if one["phase"] == "joined")
    result, snapshot = get_object(joined, "result"), get_object(joined, "snapshot")
    (ip,), (link_address, *others) = get_objects(result, "ips"), get_objects(snapshot, "addresses")
    further = {**link_address, "address": "10.1.2.5/16"}
    link_local = {**link_address, "address": "fe80::5/64", "scope": 253}
    document: JsonObject = {
        **joined,
        "result": {**result, "ips": [ip, {**ip, "address": "10.1.2.4/16"}]},
        "snapshot": {**snapshot, "addresses": [link_address, *others, further, link_local]},
    }
    assert migrate(f"endpoint/{joined['id']}", document, 2)["addresses"] == ["10.1.2.3", "10.1.2.4", "10.1.2.5"]
