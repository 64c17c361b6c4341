# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""GC of the cached runtime: stale attachments, and no others, are deleted."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, get_objects
from cni_invoker import AttachmentKey
from cni_invoker.errors import GcFailed
from cni_tool import CachedAttachment, CachedRuntime, CacheError, FileCache
from extras.cni_tool.tests.unit.cached_scene import ATTACHMENT, BANANA, BLUE, BOOT, FIRST, RESULT, Scene, network


@pytest.mark.parametrize(("failure", "remembered"), [(BANANA, 1), ({"error": {"code": 7, "msg": "rejected"}}, 0)])
async def test_gc_deletes_an_attachment_whose_add_never_completed(
    scene: Scene, failure: JsonObject, remembered: int
) -> None:
    """As with DEL, only a plugin that rejects the request has made nothing; another failure keeps the DEL pending."""
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
    """A stale attachment is deleted, then the plugins receive the valid ones; other networks are kept."""
    await add_three(scene)
    valid = AttachmentKey(container_id="c2", ifname="eth0")
    before = len(scene.commands)
    await scene.runtime.gc(network(FIRST), [valid])
    later = scene.commands[before:]
    assert scene.calls[before:] == ["second DEL", "first DEL", "first GC"]
    assert later[0].environment["CNI_CONTAINERID"] == "c1"
    assert later[0].environment["CNI_ARGS"] == "K=V"
    assert later[1].stdin["runtimeConfig"] == {"mac": "02::"}
    for command in later[2:]:
        assert get_objects(command.stdin, "cni.dev/valid-attachments") == ({"containerID": "c2", "ifname": "eth0"},)
    assert [kept.attachment.container_id for kept in await scene.runtime.attachments()] == ["c2", "c3"]


async def test_gc_with_an_empty_set_deletes_everything(scene: Scene) -> None:
    """The plugins receive the empty set too."""
    await add_three(scene)
    await scene.runtime.gc(BLUE, ())
    assert await scene.runtime.attachments("blue") == ()
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == []


async def test_gc_continues_after_a_failure(scene: Scene) -> None:
    """The other attachments are deleted; the failed one is in the error, stays cached, and is valid for the plugins."""
    await add_three(scene)
    scene.plugins.install("second", DEL=[BANANA, BANANA, {}], GC=BANANA)
    with pytest.raises(GcFailed) as caught:
        await scene.runtime.gc(BLUE, ())
    assert [str(error).count("banana") for error in caught.value.errors] == [1, 1]
    (kept,) = await scene.runtime.attachments("blue")
    assert kept.attachment.container_id == "c1"
    valid = [command.stdin["cni.dev/valid-attachments"] for command in scene.commands if command.verb == "GC"]
    assert valid == [[{"containerID": "c1", "ifname": "eth0"}]] * 2


async def test_gc_does_nothing_if_it_is_disabled(scene: Scene) -> None:
    """With disableGC no attachment is deleted, and no plugin runs."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    before = scene.calls
    await scene.runtime.gc(network(FIRST, disableGC=True), ())
    assert scene.calls == before
    assert len(await scene.runtime.attachments()) == 1


async def test_gc_fails_if_the_cache_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    """Missing records do not make attachments stale."""
    (tmp_path / "results").write_bytes(b"")
    with pytest.raises(CacheError):
        await CachedRuntime(scene.stateless, FileCache(tmp_path)).gc(BLUE, ())
    assert scene.calls == []


async def test_gc_fails_if_a_record_of_the_network_is_damaged(scene: Scene, tmp_path: Path) -> None:
    """The record may be a valid attachment, which the plugins would treat as stale, so none of them runs."""
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


@pytest.mark.parametrize("first", ["add", "gc"])
async def test_gc_keeps_an_attachment_added_while_it_waits(scene: Scene, tmp_path: Path, first: str) -> None:
    """An ADD that runs when GC is called, or that comes while GC waits, is not in the caller's set, but not stale."""
    gate = tmp_path / "gate"
    await scene.runtime.add(BLUE, ATTACHMENT)
    scene.plugins.install("first", ADD={"result": RESULT, "wait_for": str(gate)})

    async def begin_add(tasks: asyncio.TaskGroup, container_id: str) -> None:
        begun = scene.calls.count("first ADD")
        tasks.create_task(scene.runtime.add(BLUE, replace(ATTACHMENT, container_id=container_id)))
        while scene.calls.count("first ADD") == begun:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        # GC waits for an ADD that runs. "late" is that ADD, or a second one that comes while GC waits.
        await begin_add(tasks, "late" if first == "add" else "early")
        tasks.create_task(scene.runtime.gc(BLUE, ()))
        await asyncio.sleep(0.1)
        if first == "gc":
            await begin_add(tasks, "late")
        gate.touch()
    cached = {kept.attachment.container_id for kept in await scene.runtime.attachments()}
    assert "c1" not in cached
    assert "late" in cached
    deleted = {command.environment["CNI_CONTAINERID"] for command in scene.commands if command.verb == "DEL"}
    assert deleted == {"c1"}
    requests = [command.stdin for command in scene.commands if command.verb == "GC"]
    assert len(requests) == 2
    for document in requests:
        assert {"containerID": "late", "ifname": "eth0"} in get_objects(document, "cni.dev/valid-attachments")


async def test_gc_keeps_an_attachment_replaced_since_it_was_listed(scene: Scene, tmp_path: Path) -> None:
    """An attachment that another process has deleted and added again is not stale."""

    class ChangingCache(FileCache):
        async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
            listed = await super().list(network, whole=whole)
            for cached in listed:
                await self.put(replace(cached, attachment=replace(cached.attachment, netns="/run/netns/new")))
            return listed

    runtime = CachedRuntime(scene.stateless, ChangingCache(tmp_path / "x"), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    await runtime.gc(BLUE, ())
    assert scene.calls[2:] == ["first GC", "second GC"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


@pytest.mark.parametrize("valid", [[ATTACHMENT], [("c1", "eth0")], "c1/eth0"], ids=["attachments", "tuples", "text"])
async def test_gc_rejects_what_is_no_key(scene: Scene, valid: object) -> None:
    """Such a value matches no attachment, so a valid one would be deleted: TypeError, and nothing runs."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    before = scene.calls
    for runtime in (scene.runtime, scene.stateless):
        with pytest.raises(TypeError, match="must be given as its AttachmentKey"):
            await runtime.gc(BLUE, valid)  # type: ignore[arg-type]
    assert scene.calls == before
    assert len(await scene.runtime.attachments()) == 1
