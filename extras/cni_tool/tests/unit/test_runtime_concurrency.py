# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cached runtime, used concurrently."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import AttachmentKey, Runtime
from cni_invoker.errors import NetworkBusy
from cni_tool import AttachmentExists, CachedAttachment, CachedRuntime, FileCache
from extras.cni_tool.tests.unit.cached_scene import ATTACHMENT, BLUE, BOOT, LIMITS, RESULT, Scene


class Barrier:
    """A point at which a task waits until the test lets it continue."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def wait(self) -> None:
        """Wait here, the first time only."""
        self.reached.set()
        await self._go.wait()

    def release(self) -> None:
        """Let the task continue."""
        self._go.set()


@pytest.mark.parametrize("of", ["attachment", "record"])
async def test_a_delete_waits_for_the_add(scene: Scene, tmp_path: Path, of: str) -> None:
    """It then deletes with ADD's final result, not with what was cached halfway."""
    barrier = Barrier()

    class SlowCache(FileCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await super().put(cached, new=new)
            await barrier.wait()

    cache = SlowCache(tmp_path / "slow")
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(BLUE, ATTACHMENT))
        await barrier.reached.wait()
        (half,) = await cache.list()
        assert half.added_plugins == 0
        tasks.create_task(runtime.delete(BLUE, ATTACHMENT) if of == "attachment" else runtime.delete_cached(half))
        await asyncio.sleep(0)  # the DEL starts, and waits
        barrier.release()
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "first DEL"]
    assert [command.stdin.get("prevResult") for command in scene.commands[2:]] == [RESULT] * 2
    assert await cache.list() == ()
    await runtime.delete_cached(half)
    assert len(scene.calls) == 4


async def test_concurrent_adds_of_two_processes(scene: Scene, tmp_path: Path) -> None:
    """The second waits for the first, is rejected, and undoes nothing."""
    barrier = Barrier()

    class SlowCache(FileCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await barrier.wait()
            await super().put(cached, new=new)

    first = CachedRuntime(scene.stateless, SlowCache(tmp_path), boot_id=BOOT)
    other = Runtime([scene.plugins.directory], LIMITS)
    second = CachedRuntime(other, FileCache(tmp_path), boot_id=BOOT, wait_s=0.05)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.add(BLUE, ATTACHMENT))
        await barrier.reached.wait()
        with pytest.raises(NetworkBusy):
            await second.add(BLUE, ATTACHMENT)
        barrier.release()
    with pytest.raises(AttachmentExists):
        await second.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD"]


async def test_gc_does_not_hold_up_other_containers(scene: Scene, tmp_path: Path) -> None:
    """While GC deletes one attachment, another container can be added."""
    barrier = Barrier()

    class SlowCache(FileCache):
        async def remove(self, network: str, key: AttachmentKey, *, force: bool = False) -> None:
            await barrier.wait()
            await super().remove(network, key, force=force)

    runtime = CachedRuntime(scene.stateless, SlowCache(tmp_path / "slow"), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.gc(BLUE, ()))
        await barrier.reached.wait()
        await runtime.add(BLUE, replace(ATTACHMENT, container_id="late"))
        assert len(await runtime.attachments()) == 2
        barrier.release()
    assert [kept.attachment.container_id for kept in await runtime.attachments()] == ["late"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "late", "ifname": "eth0"}]
