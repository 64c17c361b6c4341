# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A runtime that remembers, used by many at once."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    AttachmentExists,
    AttachmentKey,
    CachedAttachment,
    CachedRuntime,
    FileCache,
    MemoryCache,
    NetworkBusy,
    Runtime,
)
from tests.unit.cni_invoker.cached_scene import (
    ATTACHMENT,
    BLUE,
    BOOT,
    LIMITS,
    RESULT,
    Scene,
)


async def test_nothing_is_added_twice_at_once(scene: Scene) -> None:
    """Of two ADDs of the same at the same time one is refused."""
    outcomes = await asyncio.gather(
        scene.runtime.add(BLUE, ATTACHMENT), scene.runtime.add(BLUE, ATTACHMENT), return_exceptions=True
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["Result", "AttachmentExists"]
    assert scene.calls == ["first ADD", "second ADD"]


class Halt:
    """A place where somebody stops until he is told to go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def stop(self) -> None:
        """Stop here; once only."""
        self.reached.set()
        await self._go.wait()

    def go_on(self) -> None:
        """Let go."""
        self._go.set()


@pytest.mark.parametrize("of", ["attachment", "record"])
async def test_a_delete_during_an_add(scene: Scene, of: str) -> None:
    """It waits, and then deletes what the ADD has made by its end, not what was remembered half-way."""
    halt = Halt()

    class SlowCache(MemoryCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await super().put(cached, new=new)
            await halt.stop()

    cache = SlowCache()
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(BLUE, ATTACHMENT))
        await halt.reached.wait()
        (half,) = await cache.list()
        assert half.added_plugins == 0
        tasks.create_task(runtime.delete(BLUE, ATTACHMENT) if of == "attachment" else runtime.delete_cached(half))
        await asyncio.sleep(0)  # it has begun
        halt.go_on()
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "first DEL"]
    assert [command.stdin.get("prevResult") for command in scene.commands[2:]] == [RESULT] * 2
    assert await cache.list() == ()
    await runtime.delete_cached(half)
    assert len(scene.calls) == 4


async def test_two_processes_add_the_same(scene: Scene, tmp_path: Path) -> None:
    """The second waits for the first, is refused, and undoes nothing."""
    halt = Halt()

    class SlowCache(FileCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await halt.stop()
            await super().put(cached, new=new)

    first = CachedRuntime(scene.stateless, SlowCache(tmp_path), boot_id=BOOT)
    other = Runtime([scene.plugins.directory], LIMITS)
    second = CachedRuntime(other, FileCache(tmp_path), boot_id=BOOT, wait_s=0.05)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.add(BLUE, ATTACHMENT))
        await halt.reached.wait()
        with pytest.raises(NetworkBusy):
            await second.add(BLUE, ATTACHMENT)
        halt.go_on()
    with pytest.raises(AttachmentExists):
        await second.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD"]


async def test_others_work_while_gc_deletes(scene: Scene) -> None:
    """A DEL that takes long holds up nobody but its own container."""
    halt = Halt()

    class SlowCache(MemoryCache):
        async def remove(self, network: str, key: AttachmentKey) -> None:
            await halt.stop()
            await super().remove(network, key)

    runtime = CachedRuntime(scene.stateless, SlowCache(), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.gc(BLUE, ()))
        await halt.reached.wait()
        await runtime.add(BLUE, replace(ATTACHMENT, container_id="late"))
        assert len(await runtime.attachments()) == 2
        halt.go_on()
    assert [kept.attachment.container_id for kept in await runtime.attachments()] == ["late"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "late", "ifname": "eth0"}]
