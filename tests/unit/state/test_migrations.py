# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""State of earlier schema versions is migrated, except for damaged records; the migrations here are made up."""

from pathlib import Path

import plyvel
import pytest

from cni_bridge_spec import JsonObject, get_objects
from cni_bridge_state import EndpointRecord, ImportRefused, NetworkRecord
from cni_bridge_state.codec import join_checksum, parse_value
from cni_bridge_state.migrations import MIGRATIONS as OF_THIS_RELEASE
from cni_bridge_state.migrations import SCHEMA_VERSION, Migrations
from cni_bridge_state.store import Store
from tests.unit.state.made_up_migrations import MIGRATIONS, as_version, write_older


@pytest.fixture
async def current(tmp_path: Path, network: NetworkRecord, endpoint: EndpointRecord) -> JsonObject:
    """The export of a state with one network and one endpoint, by the version that the migrations lead to."""
    store = Store.open(tmp_path / "current", MIGRATIONS)
    await store.put_engine_identity("AAAA")
    await store.put_network(network)
    await store.put_endpoint(endpoint)
    document = store.export_document()
    store.close()
    return document


def older(current: JsonObject, version: int) -> JsonObject:
    """Return an export as an earlier version wrote it."""
    endpoints = [as_version(version, document) for document in get_objects(current, "endpoints")]
    return {**current, "schema": version, "endpoints": endpoints}


def stored(directory: Path) -> dict[str, bytes]:
    """Return all entries of a state directory."""
    with plyvel.DB(str(directory / "leveldb")) as db:
        return {key.decode(): value for key, value in db}


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_state_is_migrated(
    tmp_path: Path, current: JsonObject, network: NetworkRecord, endpoint: EndpointRecord, version: int
) -> None:
    """Each step from its version on is applied once, and the migrated records are stored."""
    write_older(tmp_path / "older", older(current, version))
    for _ in range(2):
        store = Store.open(tmp_path / "older", MIGRATIONS)
        assert (store.not_migrated, store.findings) == (None, ())
        assert store.networks() == (network,)
        assert store.endpoints() == (endpoint,)
        assert store.export_document() == current
        store.close()
        entries = stored(tmp_path / "older")
        assert entries["meta/schema"] == b"3"
        assert parse_value(NetworkRecord, f"network/{network.id}", entries[f"network/{network.id}"]) == network
        assert parse_value(EndpointRecord, f"endpoint/{endpoint.id}", entries[f"endpoint/{endpoint.id}"]) == endpoint


@pytest.mark.parametrize("damage", [b"no JSON", b"[]", b'{"snapshot": 7}'])
@pytest.mark.parametrize("has_checksum", [False, True])
def test_a_damaged_record_does_not_stop_the_migration(
    tmp_path: Path, current: JsonObject, endpoint: EndpointRecord, damage: bytes, has_checksum: bool
) -> None:
    """It is set aside like a damaged record of the current version; the others are migrated."""
    write_older(tmp_path, older(current, 1))
    with plyvel.DB(str(tmp_path / "leveldb")) as db:
        db.put(b"endpoint/" + b"f" * 64, join_checksum(damage) if has_checksum else damage)
    store = Store.open(tmp_path, MIGRATIONS)
    assert store.endpoints() == (endpoint,)
    (finding,) = store.findings
    assert (finding.lost, "f" * 64 in finding.what) == (1, True)
    store.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_export_is_imported(tmp_path: Path, current: JsonObject, version: int) -> None:
    """The import gives the same state as the export of the current version."""
    exported = current if version == MIGRATIONS.version else older(current, version)
    store = Store.open(tmp_path / "imported", MIGRATIONS)
    store.import_document(exported)
    assert store.export_document() == current
    store.close()
    store = Store.open_replaced(tmp_path / "imported", exported, MIGRATIONS)
    assert store.export_document() == current
    store.close()


def test_a_damaged_export_is_rejected_as_a_whole(tmp_path: Path, current: JsonObject) -> None:
    """The error names the damaged record, and nothing is imported."""
    store = Store.open(tmp_path / "imported", MIGRATIONS)
    document: JsonObject = {**older(current, 1), "endpoints": [{"id": "f" * 64, "snapshot": 7}]}
    with pytest.raises(ImportRefused, match=f"record endpoint/{'f' * 64} cannot be imported: boot is missing"):
        store.import_document(document)
    assert store.networks() == ()
    store.close()


def test_the_current_version_is_not_migrated() -> None:
    """A document of the current version is returned unchanged, also by a release without migrations."""
    document: JsonObject = {"boot": "0c1f"}
    assert MIGRATIONS.migrate("endpoint/e", document, MIGRATIONS.version) == document
    assert OF_THIS_RELEASE.migrate("endpoint/e", document, SCHEMA_VERSION) == document
    assert Migrations().version == 1
