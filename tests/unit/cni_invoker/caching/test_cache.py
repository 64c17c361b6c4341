# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache: what is put is found until it is removed."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import FileCache
from cni_invoker.errors import AttachmentExists
from tests.unit.cni_invoker.cached_attachments import CACHED, KEY


@pytest.fixture(name="cache")
def make_cache(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


async def test_a_cached_attachment_is_found_until_it_is_removed(cache: FileCache) -> None:
    """All fields are found again, with or without a result; removing twice is no error."""
    assert await cache.find("blue", KEY) is None
    await cache.put(replace(CACHED, result=None, added_plugins=0))
    assert await cache.find("blue", KEY) == replace(CACHED, result=None, added_plugins=0)
    await cache.put(CACHED)
    assert await cache.find("blue", KEY) == CACHED
    await cache.remove("blue", KEY)
    assert await cache.find("blue", KEY) is None
    await cache.remove("blue", KEY)


async def test_a_put_of_a_new_attachment_fails_if_it_exists(cache: FileCache) -> None:
    """It raises AttachmentExists, and changes nothing."""
    await cache.put(CACHED, new=True)
    with pytest.raises(AttachmentExists):
        await cache.put(replace(CACHED, result=None), new=True)
    assert await cache.list() == (CACHED,)
