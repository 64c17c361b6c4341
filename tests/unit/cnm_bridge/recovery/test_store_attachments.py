# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's endpoints, seen as CNI attachments."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    AttachmentKey,
    AttachmentReader,
    CacheDamaged,
    CachedAttachment,
    NetworkConfigurationList,
)
from cnm_bridge.recovery.store_attachments import EndpointCache
from spec import JsonObject
from state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    Phase,
    RequestedInterface,
    Store,
)

RESULT: JsonObject = {"cniVersion": "1.0.0"}


def endpoint(endpoint_id: str, network: str) -> EndpointRecord:
    """Make an endpoint whose plugins have not run yet."""
    return EndpointRecord(
        id=EndpointId(endpoint_id),
        network_id=NetworkId("a" * 64),
        phase=Phase.PENDING,
        boot_id="0c1f",
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            id=AttachmentId(endpoint_id),
            ifname="eth0",
            netns=f"/run/cni-bridge/netns/{endpoint_id}",
            configuration={"cniVersion": "1.0.0", "name": network, "plugins": [{"type": "bridge"}]},
            cni_version="1.0.0",
            args=(("K", "V"),),
            capability_args={"mac": "02:00:00:00:00:01"},
        ),
    )


@pytest.fixture(name="store")
def make_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture(name="cache")
def make_cache(store: Store) -> AttachmentReader:
    """The object under test."""
    return EndpointCache(store)


async def test_an_endpoint_is_an_attachment(store: Store, cache: AttachmentReader) -> None:
    """Its ID is the container ID, its configuration's name the network, and all that DEL needs is there."""
    record = endpoint("e1", "blue")
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


async def test_who_is_asked_for(store: Store, cache: AttachmentReader) -> None:
    """Another network, ID or interface name is another attachment."""
    for endpoint_id, network in (("e1", "blue"), ("e2", "red")):
        await store.put_endpoint(endpoint(endpoint_id, network))
    key = AttachmentKey(container_id="e1", ifname="eth0")
    assert await cache.find("blue", key) is not None
    assert await cache.find("red", key) is None
    assert await cache.find("blue", replace(key, container_id="e3")) is None
    assert await cache.find("blue", replace(key, ifname="eth1")) is None
    assert [cached.attachment.container_id for cached in await cache.list("red")] == ["e2"]


async def test_every_phase_owes_a_delete(store: Store, cache: AttachmentReader) -> None:
    """From the intent to the end of DEL an endpoint is an attachment: GC must not take it for nobody's."""
    record = endpoint("e1", "blue")
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED, Phase.DELETING):
        await store.put_endpoint(replace(record, phase=phase))
        assert len(await cache.list("blue")) == 1
    await store.remove_endpoint(record.id)
    assert await cache.list("blue") == ()


async def test_it_is_the_half_that_is_read(store: Store, cache: AttachmentReader) -> None:
    """Only the daemon undoes an endpoint: not by DEL alone, which would not find the link."""
    assert not hasattr(cache, "put")
    assert not hasattr(cache, "remove")
    await store.put_endpoint(endpoint("e1", "blue"))
    async with cache.hold("blue", "e1", wait_s=0), cache.hold("blue", None, wait_s=0):
        assert len(await cache.list("blue", whole=True)) == 1  # nobody else has the store


async def test_a_list_is_as_it_was_spoken(store: Store, cache: AttachmentReader) -> None:
    """Whatever a list offers, its plugins are spoken to in the version of the ADD."""
    record = endpoint("e1", "blue")
    offering: JsonObject = {**record.attachment.configuration, "cniVersions": ["1.0.0", "1.1.0"]}
    attachment = replace(record.attachment, configuration=offering, cni_version="1.1.0")
    await store.put_endpoint(replace(record, attachment=attachment))
    (cached,) = await cache.list()
    assert cached.configuration is not None
    network = NetworkConfigurationList.from_document(cached.configuration)
    assert (network.cni_version, network.cni_versions) == ("1.1.0", ("1.1.0",))


async def test_what_has_been_set_aside(tmp_path: Path) -> None:
    """Who is not in the store because his record was damaged is not nobody, for as long as the damage is kept."""
    directory = tmp_path / "state"
    with closing(Store.open(directory)) as store:
        assert await EndpointCache(store).list("blue", whole=True) == ()
        store._db.write_now({"endpoint/e1": b"garbage"})
    for _ in range(2):  # it is the same after the next start
        with closing(Store.open(directory)) as store:
            (copy,) = directory.glob("damaged-records-*")
            assert await EndpointCache(store).list("blue") == ()
            with pytest.raises(CacheDamaged, match=f"{copy}.*remove it when none of them runs"):
                await EndpointCache(store).list("blue", whole=True)
    copy.unlink()
    with closing(Store.open(directory)) as store:
        assert await EndpointCache(store).list("blue", whole=True) == ()
