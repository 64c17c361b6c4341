# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's endpoints as CNI attachments."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Attachment, AttachmentKey, AttachmentReader, CachedAttachment, NetworkConfigurationList
from cni_invoker.errors import CacheDamaged
from cnm_bridge.driver.recovery.plugin_gc import EndpointCache
from tests.records import endpoint

RESULT: JsonObject = {"cniVersion": "1.0.0"}


def pending(endpoint_id: str, network: str) -> EndpointRecord:
    """Return an endpoint whose plugins have not run yet."""
    mac: JsonObject = {"mac": "02:00:00:00:00:01"}
    return endpoint(endpoint_id, Phase.PENDING, network=network, args=(("K", "V"),), capability_args=mac)


@pytest.fixture(name="store")
def make_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture(name="cache")
def make_cache(store: Store) -> AttachmentReader:
    """The attachments of the store."""
    return EndpointCache(store)


async def test_an_endpoint_is_an_attachment(store: Store, cache: AttachmentReader) -> None:
    """The attachment ID is the container ID, the list's name the network, and all inputs of DEL are present."""
    record = pending("e1", "blue")
    await store.put_endpoint(record)
    await store.put_endpoint(replace(record, phase=Phase.READY, added_plugins=1, result=RESULT))
    expected = CachedAttachment(
        network="blue",
        attachment=Attachment(
            container_id="e1",
            ifname="eth0",
            netns="/run/cni-bridge/netns/e1",
            args=(("K", "V"),),
            capability_args={"mac": "02:00:00:00:00:01"},
        ),
        configuration=record.attachment.configuration,
        result=RESULT,
        boot_id="0c1f",
        added_plugins=1,
    )
    assert await cache.find("blue", expected.attachment.key) == expected
    assert await cache.list() == (expected,)


async def test_attachments_are_found_by_network_and_key(store: Store, cache: AttachmentReader) -> None:
    """Another network, container ID or interface name finds nothing."""
    for endpoint_id, network in (("e1", "blue"), ("e2", "red")):
        await store.put_endpoint(pending(endpoint_id, network))
    key = AttachmentKey(container_id="e1", ifname="eth0")
    assert await cache.find("blue", key) is not None
    assert await cache.find("red", key) is None
    assert await cache.find("blue", replace(key, container_id="e3")) is None
    assert await cache.find("blue", replace(key, ifname="eth1")) is None
    assert [cached.attachment.container_id for cached in await cache.list("red")] == ["e2"]


async def test_an_endpoint_is_an_attachment_in_every_phase(store: Store, cache: AttachmentReader) -> None:
    """From the first record until DEL has completed GC must not treat it as stale."""
    record = pending("e1", "blue")
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED, Phase.DELETING):
        await store.put_endpoint(replace(record, phase=phase))
        assert len(await cache.list("blue")) == 1
    await store.remove_endpoint(record.id)
    assert await cache.list("blue") == ()


async def test_the_attachments_are_read_only(store: Store, cache: AttachmentReader) -> None:
    """Only a teardown removes an endpoint: DEL alone would not find the link in staging."""
    assert not hasattr(cache, "put")
    assert not hasattr(cache, "remove")
    await store.put_endpoint(pending("e1", "blue"))
    async with cache.hold("blue", "e1", wait_s=0), cache.hold("blue", None, wait_s=0):
        assert len(await cache.list("blue", whole=True)) == 1  # no other process has the store


async def test_a_list_has_the_version_of_add(store: Store, cache: AttachmentReader) -> None:
    """The list offers no other version than that of ADD."""
    record = pending("e1", "blue")
    offering: JsonObject = {**record.attachment.configuration, "cniVersions": ["1.0.0", "1.1.0"]}
    attachment = replace(record.attachment, configuration=offering, cni_version="1.1.0")
    await store.put_endpoint(replace(record, attachment=attachment))
    (cached,) = await cache.list()
    assert cached.configuration is not None
    network = NetworkConfigurationList.from_document(cached.configuration)
    assert (network.cni_version, network.cni_versions) == ("1.1.0", ("1.1.0",))


async def test_a_damaged_record_makes_the_whole_network_unreadable(tmp_path: Path) -> None:
    """The endpoint may still exist, so the attachments are incomplete until the copy of the record is removed."""
    directory = tmp_path / "state"
    with closing(Store.open(directory)) as store:
        assert await EndpointCache(store).list("blue", whole=True) == ()
        store._db.write_now({"endpoint/e1": b"garbage"})
    for _ in range(2):  # it is the same after the next start
        with closing(Store.open(directory)) as store:
            (copy,) = directory.glob("damaged-records-*")
            assert await EndpointCache(store).list("blue") == ()
            with pytest.raises(CacheDamaged, match=f"{copy}.*remove it when no container uses them"):
                await EndpointCache(store).list("blue", whole=True)
    copy.unlink()
    with closing(Store.open(directory)) as store:
        assert await EndpointCache(store).list("blue", whole=True) == ()
