# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the last container with a key had is stored with its endpoint, and survives all that the state survives."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state import EndpointRecord, MemoryRecord, Phase, StickyRecord
from cni_bridge_state import memories as module
from cni_bridge_state.memories import memory_id
from cni_bridge_state.store import Store
from tests.records import endpoint

MAC = "02:00:00:00:00:09"


def with_key(number: int, key: str, address: str) -> EndpointRecord:
    """Return an endpoint of the list `lan` that is ready, and was created at second `number`."""
    record = endpoint(f"{number:064x}", Phase.READY)
    attachment = replace(record.attachment, configuration={"name": "lan"}, sticky=StickyRecord(key=key))
    snapshot = {"link": {"mac": MAC}}
    return replace(record, attachment=attachment, addresses=(address,), snapshot=snapshot, created_at=number)


async def put(store: Store, record: EndpointRecord) -> None:
    """Store an endpoint as CreateEndpoint does."""
    await store.put_endpoint(replace(record, phase=Phase.PENDING, addresses=(), snapshot=None))
    await store.put_endpoint(record)


async def test_the_memory_is_that_of_the_last_endpoint(store: Store, tmp_path: Path) -> None:
    """It outlives the endpoint and the daemon, and is in an export."""
    await put(store, with_key(1, "web", "10.1.2.3"))
    await put(store, with_key(2, "web", "10.1.2.4"))
    first = store.get_endpoint(with_key(1, "web", "").id)
    await store.put_endpoint(replace(first, phase=Phase.JOINED))  # it gets nothing new
    wanted = MemoryRecord(id=memory_id("lan", "web"), addresses=("10.1.2.4",), mac=MAC, used_at=2)
    assert store.memories.find("lan", "web") == wanted
    for one in store.endpoints():
        await store.put_endpoint(replace(one, phase=Phase.DELETING))
        await store.remove_endpoint(one.id)
    Store.open_imported(tmp_path / "two", store.export_document()).close()
    again = Store.open(tmp_path / "two")
    try:
        assert again.memories.all() == (wanted,)
        assert again.memories.find("wan", "web") is None
    finally:
        again.close()


async def test_the_oldest_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are never more than the limit, neither in memory nor on disk."""
    monkeypatch.setattr(module, "LIMIT", 2)
    store = Store.open(tmp_path)
    for number, key in enumerate(("a", "b", "a", "c"), start=1):
        await put(store, with_key(number, key, f"10.1.2.{number}"))
    assert [one.id for one in store.memories.all()] == ["lan/a", "lan/c"]
    store.close()
    again = Store.open(tmp_path)
    try:
        assert [one.id for one in again.memories.all()] == ["lan/a", "lan/c"]
    finally:
        again.close()


async def test_missed_addresses(store: Store) -> None:
    """They are those that another container has by now."""
    record = with_key(1, "web", "10.1.2.4")
    sticky = StickyRecord(key="web", addresses=("10.1.2.3", "10.1.2.4"))
    record = replace(record, attachment=replace(record.attachment, sticky=sticky))
    assert record.missed_addresses == ("10.1.2.3",)
    assert replace(record, addresses=()).missed_addresses == ()
    await put(store, record)
    assert store.get_endpoint(record.id) == record
