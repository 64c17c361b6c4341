# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Pools, addresses and memories of keys survive a restart, an export and an import."""

from contextlib import closing
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest

from cni_bridge_spec import get_objects
from cni_bridge_state import (
    AddressPhase,
    EndpointRecord,
    MemoryRecord,
    Phase,
    ReservationRecord,
    StickyRecord,
    WrongPhase,
)
from cni_bridge_state import memories as module
from cni_bridge_state.db import Database
from cni_bridge_state.memories import memory_id
from cni_bridge_state.store import Store
from tests.records import address_pool, address_record, endpoint

POOL = address_pool(
    "lan,10.1.2.0/24,10.1.2.128/25,5f0c81aa",
    sub_pool=IPv4Network("10.1.2.128/25"),
    gateway=IPv4Address("10.1.2.1"),
    engine="AAAA",
    created_at=1767225600,
)
PENDING = address_record(
    "a" * 64,
    POOL.id,
    reservation=ReservationRecord(
        netns="/run/cni-bridge/ipam/netns",
        configuration={"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "host-local"}]},
        args=(("IgnoreUnknown", "1"), ("IP", "10.1.2.3")),
        capability_args={"ips": ["10.1.2.3"]},
    ),
    created_at=1767225601,
)
ADDRESS = IPv4Interface("10.1.2.3/24")
RESERVED = replace(PENDING, phase=AddressPhase.RESERVED, address=ADDRESS)


async def test_records_survive_a_restart(tmp_path: Path) -> None:
    """A store that is opened again has the same records, and finds them by pool and by section and address."""
    store = Store.open(tmp_path)
    await store.ipam.pools.put(POOL)
    await store.ipam.put_address(PENDING)
    assert store.ipam.find_holders("lan", ADDRESS.ip) == ()
    await store.ipam.put_address(RESERVED)
    store.close()
    with closing(Store.open(tmp_path)) as again:
        assert again.ipam.pools.all() == (POOL,)
        assert again.ipam.in_pool(POOL.id) == again.ipam.addresses() == (RESERVED,)
        assert again.ipam.find_holders("lan", ADDRESS.ip) == (RESERVED,)
        assert again.ipam.find_holders("wan", ADDRESS.ip) == ()
        await again.ipam.put_address(replace(RESERVED, phase=AddressPhase.RELEASING))
        await again.ipam.remove_address(RESERVED.id)
        await again.ipam.pools.remove(POOL.id)
        assert again.ipam.is_empty
        assert again.ipam.find_holders("lan", ADDRESS.ip) == again.ipam.in_pool(POOL.id) == ()
        assert again.ipam.pools.all() == ()


async def test_an_export_has_them(tmp_path: Path) -> None:
    """An import restores what an export has; an export of an earlier build, without them, can be imported too."""
    store = Store.open(tmp_path / "one")
    await store.ipam.pools.put(POOL)
    await store.ipam.put_address(PENDING)
    document = store.export_document()
    store.close()
    assert len(get_objects(document, "addresses")) == 1
    other = Store.open_imported(tmp_path / "two", document)
    assert (other.ipam.pools.all(), other.ipam.addresses()) == ((POOL,), (PENDING,))
    other.close()
    earlier = {key: value for key, value in document.items() if key not in {"pools", "addresses"}}
    empty = Store.open_imported(tmp_path / "three", earlier)
    assert empty.ipam.is_empty
    empty.close()


async def test_only_known_steps(store: Store) -> None:
    """A record is removed only after its DEL, and never goes back."""
    await store.ipam.put_address(PENDING)
    with pytest.raises(WrongPhase, match=r"address a+ is pending and cannot become gone"):
        await store.ipam.remove_address(PENDING.id)
    await store.ipam.put_address(RESERVED)
    with pytest.raises(WrongPhase):
        await store.ipam.put_address(PENDING)
    await store.ipam.put_address(replace(RESERVED, phase=AddressPhase.RELEASING))
    with pytest.raises(WrongPhase):
        await store.ipam.put_address(RESERVED)


async def test_a_damaged_record_is_set_aside(tmp_path: Path) -> None:
    """One damaged address does not keep the others from being read."""
    store = Store.open(tmp_path)
    await store.ipam.put_address(RESERVED)
    store.close()
    db = Database.open(tmp_path, lambda _: None)
    db.write_now({f"address/{'b' * 64}": b"00000000\n{}"})
    db.close()
    with closing(Store.open(tmp_path)) as again:
        assert again.ipam.addresses() == (RESERVED,)
        (finding,) = again.findings
        assert (finding.lost, "b" * 64 in finding.what) == (1, True)


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
    with closing(Store.open(tmp_path / "two")) as again:
        assert again.memories.all() == (wanted,)
        assert again.memories.find("wan", "web") is None


async def test_the_oldest_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are never more than the limit, neither in memory nor on disk."""
    monkeypatch.setattr(module, "LIMIT", 2)
    store = Store.open(tmp_path)
    for number, key in enumerate(("a", "b", "a", "c"), start=1):
        await put(store, with_key(number, key, f"10.1.2.{number}"))
    assert [one.id for one in store.memories.all()] == ["lan/a", "lan/c"]
    store.close()
    with closing(Store.open(tmp_path)) as again:
        assert [one.id for one in again.memories.all()] == ["lan/a", "lan/c"]


async def test_missed_addresses(store: Store) -> None:
    """They are those that another container has by now."""
    record = with_key(1, "web", "10.1.2.4")
    sticky = StickyRecord(key="web", addresses=("10.1.2.3", "10.1.2.4"))
    record = replace(record, attachment=replace(record.attachment, sticky=sticky))
    assert record.missed_addresses == ("10.1.2.3",)
    assert replace(record, addresses=()).missed_addresses == ()
    await put(store, record)
    assert store.get_endpoint(record.id) == record
