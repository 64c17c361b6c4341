# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Disks without a free inode: attachments in a cache can be deleted."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import PluginFailed
from cni_tool import CachedRuntime, CacheError, FileCache
from extras.cni_tool.tests.unit.cached_attachments import names
from extras.cni_tool.tests.unit.cached_scene import ATTACHMENT, BANANA, BLUE, Scene

INODES = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of few inodes."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"nr_inodes={INODES}", "tmpfs", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


def use_inodes(disk: Path) -> None:
    """Use up all inodes."""
    with suppress(OSError):
        for number in range(INODES):
            (disk / f"filling-{number}").touch()


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> Scene:
    """The fake plugins, on another disk."""
    return Scene(tmp_path)


async def test_delete_needs_no_free_inode(plugins: Scene, disk: Path) -> None:
    """Every plugin runs, and the record is gone."""
    cache = FileCache(disk)
    runtime = CachedRuntime(plugins.stateless, cache)
    await runtime.add(BLUE, ATTACHMENT)
    use_inodes(disk)
    await runtime.delete(BLUE, ATTACHMENT)
    assert plugins.calls[-2:] == ["second DEL", "first DEL"]
    assert await cache.list() == ()
    assert {name.partition("-")[0] for name in names(disk)} <= {"filling", "lock", "results"}


async def test_add_is_refused(plugins: Scene, disk: Path) -> None:
    """An attachment that cannot be recorded is not added: no plugin runs."""
    await CachedRuntime(plugins.stateless, FileCache(disk)).add(BLUE, ATTACHMENT)
    before = plugins.calls
    use_inodes(disk)
    with pytest.raises(CacheError, match="No space left"):
        await CachedRuntime(plugins.stateless, FileCache(disk)).add(BLUE, replace(ATTACHMENT, container_id="c2"))
    assert plugins.calls == before


async def test_a_failed_delete_keeps_the_attachment(plugins: Scene, disk: Path) -> None:
    """The progress of DEL cannot be stored, but the attachment's record stays, and a repeated delete succeeds."""
    cache = FileCache(disk)
    runtime = CachedRuntime(plugins.stateless, cache)
    await runtime.add(BLUE, ATTACHMENT)
    use_inodes(disk)
    plugins.plugins.install("first", DEL=BANANA)
    with pytest.raises(PluginFailed, match="banana"):
        await runtime.delete(BLUE, ATTACHMENT)
    assert len(await cache.list()) == 1
    plugins.plugins.install("first")
    await runtime.delete(BLUE, ATTACHMENT)
    assert await cache.list() == ()
