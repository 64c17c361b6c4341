# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""GC of a runtime that remembers: what is stale gets its DEL, and nobody else does."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    AttachmentKey,
    CachedAttachment,
    CachedRuntime,
    CacheError,
    FileCache,
    GcFailed,
    MemoryCache,
)
from spec import JsonObject, get_objects
from tests.unit.cni_invoker.cached_scene import (
    ATTACHMENT,
    BANANA,
    BLUE,
    BOOT,
    FIRST,
    RESULT,
    Scene,
    network,
)


@pytest.mark.parametrize(("failure", "remembered"), [(BANANA, 1), ({"error": {"code": 7, "msg": "rejected"}}, 0)])
async def test_gc_of_what_a_crash_has_cut_off(scene: Scene, failure: JsonObject, remembered: int) -> None:
    """A plugin whose ADD never completed counts as with DEL: only one that rejects the request has made nothing."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, added_plugins=1))
    scene.plugins.install("second", DEL=failure)
    with pytest.raises(GcFailed) if remembered else nullcontext():
        await scene.runtime.gc(BLUE, ())
    assert scene.calls.count("first DEL") == 1
    assert len(await scene.runtime.attachments()) == remembered


async def add_three(scene: Scene) -> None:
    """Add c1 and c2 to blue, and c3 to red."""
    for name in ("c1", "c2"):
        await scene.runtime.add(BLUE, replace(ATTACHMENT, container_id=name))
    await scene.runtime.add(network(FIRST, name="red"), replace(ATTACHMENT, container_id="c3"))


async def test_gc_deletes_what_is_not_valid(scene: Scene) -> None:
    """A stale attachment gets its DEL, then the plugins of each list receive what is valid; other networks stay."""
    await add_three(scene)
    valid = AttachmentKey(container_id="c2", ifname="eth0")
    before = len(scene.commands)
    await scene.runtime.gc(network(FIRST), [valid])
    later = scene.commands[before:]
    assert scene.calls[before:] == ["second DEL", "first DEL", "first GC", "first GC", "second GC"]
    assert later[0].environment["CNI_CONTAINERID"] == "c1"
    assert later[0].environment["CNI_ARGS"] == "K=V"
    assert later[1].stdin["runtimeConfig"] == {"mac": "02::"}
    for command in later[2:]:
        assert get_objects(command.stdin, "cni.dev/valid-attachments") == ({"containerID": "c2", "ifname": "eth0"},)
    assert [kept.attachment.container_id for kept in await scene.runtime.attachments()] == ["c2", "c3"]


async def test_gc_of_everything_wants_to_be_told(scene: Scene) -> None:
    """An empty set is a decision; it is passed on as one."""
    await add_three(scene)
    await scene.runtime.gc(BLUE, ())
    assert await scene.runtime.attachments("blue") == ()
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == []


async def test_gc_goes_on_after_a_failure(scene: Scene) -> None:
    """All that can be deleted is; what failed is told, remembered, and for the plugins still valid."""
    await add_three(scene)
    scene.plugins.install("second", DEL=[BANANA, BANANA, {}], GC=BANANA)
    with pytest.raises(GcFailed) as caught:
        await scene.runtime.gc(BLUE, ())
    assert [str(error).count("banana") for error in caught.value.errors] == [1, 1]
    (kept,) = await scene.runtime.attachments("blue")
    assert kept.attachment.container_id == "c1"
    told = [command.stdin["cni.dev/valid-attachments"] for command in scene.commands if command.verb == "GC"]
    assert told == [[{"containerID": "c1", "ifname": "eth0"}]] * 2


async def test_gc_that_is_disabled(scene: Scene) -> None:
    """With disableGC nothing is deleted and nothing run."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    before = scene.calls
    await scene.runtime.gc(network(FIRST, disableGC=True), ())
    assert scene.calls == before
    assert len(await scene.runtime.attachments()) == 1


async def test_gc_with_a_cache_that_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    """Nobody is taken for stale because nothing is known."""
    (tmp_path / "results").write_bytes(b"")
    with pytest.raises(CacheError):
        await CachedRuntime(scene.stateless, FileCache(tmp_path)).gc(BLUE, ())
    assert scene.calls == []


async def test_gc_with_a_file_that_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    """It may be an attachment to the network: plugins, which would take it for nobody's, are not asked."""
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    file = tmp_path / "results" / "blue-c9-eth0"
    file.parent.mkdir()
    file.write_bytes(b"garbage")
    with pytest.raises(GcFailed, match=str(file)):
        await runtime.gc(BLUE, ())
    assert scene.calls == []
    file.rename(file.with_name("red-c9-eth0"))
    await runtime.gc(BLUE, ())
    assert scene.calls == ["first GC", "second GC"]


async def test_gc_spares_what_came_before_it_looked(scene: Scene) -> None:
    """An ADD that begins and ends between the question and the look is in nobody's list of the valid either."""

    class SlowCache(MemoryCache):
        async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
            if not whole:
                await runtime.add(BLUE, ATTACHMENT)
            return await super().list(network, whole=whole)

    runtime = CachedRuntime(scene.stateless, SlowCache(), boot_id=BOOT)
    await runtime.gc(BLUE, ())
    assert scene.calls == ["first ADD", "second ADD", "first GC", "second GC"]


@pytest.mark.parametrize("first", ["add", "gc"])
async def test_gc_spares_what_comes_meanwhile(scene: Scene, tmp_path: Path, first: str) -> None:
    """An ADD under way when GC is asked for, or that comes while GC waits, is in nobody's list of the valid."""
    gate = tmp_path / "gate"
    await scene.runtime.add(BLUE, ATTACHMENT)
    scene.plugins.install("first", ADD={"result": RESULT, "wait_for": str(gate)})

    async def begin_add(tasks: asyncio.TaskGroup, container_id: str) -> None:
        begun = scene.calls.count("first ADD")
        tasks.create_task(scene.runtime.add(BLUE, replace(ATTACHMENT, container_id=container_id)))
        while scene.calls.count("first ADD") == begun:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        # In either case an ADD that has begun keeps GC waiting; the late one is that one, or comes while GC waits.
        await begin_add(tasks, "late" if first == "add" else "early")
        tasks.create_task(scene.runtime.gc(BLUE, ()))
        await asyncio.sleep(0.1)
        if first == "gc":
            await begin_add(tasks, "late")
        gate.touch()
    there = {kept.attachment.container_id for kept in await scene.runtime.attachments()}
    assert "c1" not in there
    assert "late" in there
    deleted = {command.environment["CNI_CONTAINERID"] for command in scene.commands if command.verb == "DEL"}
    assert deleted == {"c1"}
    told = [command.stdin for command in scene.commands if command.verb == "GC"]
    assert len(told) == 2
    for document in told:
        assert {"containerID": "late", "ifname": "eth0"} in get_objects(document, "cni.dev/valid-attachments")


async def test_gc_looks_again(scene: Scene) -> None:
    """What another process has deleted and added again since it was listed is not stale."""

    class ChangingCache(MemoryCache):
        async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
            listed = await super().list(network, whole=whole)
            for cached in listed:
                await self.put(replace(cached, attachment=replace(cached.attachment, netns="/run/netns/new")))
            return listed

    runtime = CachedRuntime(scene.stateless, ChangingCache(), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    await runtime.gc(BLUE, ())
    assert scene.calls[2:] == ["first GC", "second GC"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


@pytest.mark.parametrize("valid", [[ATTACHMENT], [("c1", "eth0")], "c1/eth0"], ids=["attachments", "tuples", "text"])
async def test_gc_of_what_is_no_key(scene: Scene, valid: object) -> None:
    """It equals no key, and so would delete what it was to spare: nothing is executed."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    before = scene.calls
    for runtime in (scene.runtime, scene.stateless):
        with pytest.raises(TypeError, match="must be given as its AttachmentKey"):
            await runtime.gc(BLUE, valid)  # type: ignore[arg-type]
    assert scene.calls == before
    assert len(await scene.runtime.attachments()) == 1


async def test_gc_of_a_generator(scene: Scene) -> None:
    """It is gone through once, and every key in it is valid for each attachment, and for the plugins."""
    await add_three(scene)
    remembered = await scene.runtime.attachments("blue")
    before = len(scene.calls)
    await scene.runtime.gc(BLUE, (cached.attachment.key for cached in reversed(remembered)))
    assert scene.calls[before:] == ["first GC", "second GC"]
    for command in scene.commands[before:]:
        assert len(get_objects(command.stdin, "cni.dev/valid-attachments")) == len(remembered)


async def test_gc_of_each_list_that_was_used(scene: Scene) -> None:
    """A plugin that has been taken out of the list may still hold something; equal lists are gone through once."""
    await add_three(scene)
    keys = [cached.attachment.key for cached in await scene.runtime.attachments("blue")]
    before = len(scene.calls)
    await scene.runtime.gc(network(FIRST), [*keys, *keys])
    assert scene.calls[before:] == ["first GC", "first GC", "second GC"]
    for command in scene.commands[before:]:
        assert len(get_objects(command.stdin, "cni.dev/valid-attachments")) == len(keys)
