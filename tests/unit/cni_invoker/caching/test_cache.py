# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment caches: what every writable cache does."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import AttachmentCache, FileCache, MemoryCache
from cni_invoker.errors import AttachmentExists
from tests.unit.cni_invoker.cached_attachments import CACHED, KEY, cached


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


@pytest.fixture(name="cache", params=["memory", "file"])
def make_cache(request: pytest.FixtureRequest, tmp_path: Path) -> AttachmentCache:
    """Every writable cache."""
    return MemoryCache() if request.param == "memory" else FileCache(tmp_path)


async def test_a_cached_attachment_is_found_until_it_is_removed(cache: AttachmentCache) -> None:
    """All fields are found again, with or without a result; removing twice is no error."""
    assert await cache.find("blue", KEY) is None
    await cache.put(replace(CACHED, result=None, added_plugins=0))
    assert await cache.find("blue", KEY) == replace(CACHED, result=None, added_plugins=0)
    await cache.put(CACHED)
    assert await cache.find("blue", KEY) == CACHED
    await cache.remove("blue", KEY)
    assert await cache.find("blue", KEY) is None
    await cache.remove("blue", KEY)


async def test_attachments_differ_by_network_container_id_and_ifname(cache: AttachmentCache) -> None:
    """Dashes in these names cause no collision."""
    attachments = [("a", "b-c", "eth0"), ("a-b", "c", "eth0"), ("a", "b", "c-eth0"), ("a", "b-c", "eth1")]
    for network, container_id, ifname in attachments:
        await cache.put(cached(network, container_id, ifname))
    assert len(await cache.list()) == len(attachments)
    assert [one.network for one in await cache.list("a-b")] == ["a-b"]
    for network, container_id, ifname in attachments:
        wanted = cached(network, container_id, ifname)
        assert await cache.find(network, wanted.attachment.key) == wanted
        await cache.remove(network, wanted.attachment.key)
        assert await cache.find(network, wanted.attachment.key) is None
    assert await cache.list() == ()


async def test_a_put_of_a_new_attachment_fails_if_it_exists(cache: AttachmentCache) -> None:
    """It raises AttachmentExists, and changes nothing."""
    await cache.put(CACHED, new=True)
    with pytest.raises(AttachmentExists):
        await cache.put(replace(CACHED, result=None), new=True)
    assert await cache.list() == (CACHED,)
