# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cached runtime: whatever happens after ADD, the cache has what DEL needs."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, PluginFailed, Runtime
from cni_invoker.errors import InvalidParameter, PluginNotFound, VerbUnsupported
from cni_tool import AttachmentExists, CachedAttachment, CachedRuntime, CacheError, FileCache, NotAttached
from extras.cni_tool.tests.unit.cached_scene import (
    ATTACHMENT,
    BANANA,
    BLUE,
    BOOT,
    FIRST,
    LIMITS,
    RESULT,
    Scene,
    network,
)


async def test_attachments_of_a_container(scene: Scene) -> None:
    """They are listed by network, by container, or by both."""
    other = replace(ATTACHMENT, container_id="c2")
    red = network(FIRST, name="red")
    for used, attachment in ((BLUE, ATTACHMENT), (red, ATTACHMENT), (BLUE, other)):
        await scene.runtime.add(used, attachment)

    async def names(name: str | None = None, container_id: str | None = None) -> list[tuple[str, str]]:
        found = await scene.runtime.attachments(name, container_id=container_id)
        return [(cached.network, cached.attachment.container_id) for cached in found]

    assert await names(container_id="c1") == [("blue", "c1"), ("red", "c1")]
    assert await names("blue", "c2") == [("blue", "c2")]
    assert await names("red", "c2") == []
    assert len(await names()) == 3


async def test_arguments_are_passed_on_as_written(scene: Scene) -> None:
    """CNI_ARGS keeps its order and repeated keys for every verb; `args` of a plugin keeps all keys in their order."""
    args: JsonObject = {"z": 1, "cni": {"z": [{"key": "b"}, {"key": "a"}], "IP": None, "a": {}}, "A": "", "a": 1.10}
    given = replace(ATTACHMENT, args=(("Z", "1"), ("IgnoreUnknown", "1"), ("A", ""), ("Z", "2"), ("a", "x y")))
    await scene.runtime.add(network({**FIRST, "args": args}), given)
    await scene.runtime.check(BLUE, ATTACHMENT)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert [command.environment["CNI_ARGS"] for command in scene.commands] == ["Z=1;IgnoreUnknown=1;A=;Z=2;a=x y"] * 3
    assert [json.dumps(command.stdin["args"]) for command in scene.commands] == [json.dumps(args)] * 3


async def test_check_and_delete_use_the_inputs_of_add(scene: Scene) -> None:
    """An edited list, another netns and missing arguments do not change CHECK and DEL."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    edited = network({"type": "first", "edited": True})
    forgotten = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/other")
    await scene.runtime.check(edited, forgotten)
    await scene.runtime.delete(edited, forgotten)
    assert scene.calls[2:] == ["first CHECK", "second CHECK", "second DEL", "first DEL"]
    for command in scene.commands:
        assert "edited" not in command.stdin
        assert command.stdin.get("runtimeConfig") == ({"mac": "02::"} if command.plugin == "first" else None)
        assert (command.environment["CNI_NETNS"], command.environment["CNI_ARGS"]) == ("/run/netns/c1", "K=V")


async def test_delete_uses_the_version_of_add(scene: Scene) -> None:
    """DEL uses the version negotiated for ADD, whatever the plugins support by then."""
    offering = network(FIRST, cniVersions=["0.4.0", "1.0.0", "1.1.0"])
    versions: list[JsonValue] = ["0.4.0", "1.0.0"]
    scene.plugins.install("first", ADD={"result": {}}, VERSION={"supportedVersions": versions})
    await scene.runtime.add(offering, ATTACHMENT)
    versions.append("1.1.0")
    scene.plugins.install("first", VERSION={"supportedVersions": versions})
    await scene.runtime.delete(offering, ATTACHMENT)
    assert [command.stdin["cniVersion"] for command in scene.commands] == ["1.0.0", "1.0.0"]


@pytest.mark.parametrize(("slow", "result"), [("first", None), ("second", RESULT)])
async def test_an_attachment_is_cached_before_each_plugin_runs(
    scene: Scene, slow: str, result: JsonObject | None
) -> None:
    """A crash or a cancellation at any point of ADD leaves what its DEL needs."""
    scene.plugins.install(slow, ADD={"sleep_s": 60})
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(scene.runtime.add(BLUE, ATTACHMENT))
        async with asyncio.timeout(20):
            while f"{slow} ADD" not in scene.calls:  # noqa: ASYNC110  # a file is polled
                await asyncio.sleep(0.02)
        (kept,) = await scene.runtime.attachments()
        adding.cancel()
    assert kept.result == result
    assert await scene.runtime.attachments() == (kept,)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls[-2:] == ["second DEL", "first DEL"]
    assert [command.stdin.get("prevResult") for command in scene.commands[-2:]] == [result] * 2


async def test_a_failed_add_that_cannot_be_undone(scene: Scene) -> None:
    """ADD's error is raised, with a note that DEL is pending; the attachment stays cached."""
    scene.plugins.install("first", ADD={"result": RESULT}, DEL={"error": {"code": 999, "msg": "stuck"}})
    scene.plugins.install("second", ADD=BANANA)
    with pytest.raises(PluginFailed, match="banana") as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    (note,) = caught.value.__notes__
    assert "a DEL is still pending" in note
    assert "stuck" in note
    scene.plugins.install("first")
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()


async def test_a_plugin_that_fails_add_and_del_keeps_the_attachment_cached(scene: Scene) -> None:
    """The others run DEL; it is unknown what this plugin has made, so its DEL stays pending."""
    scene.plugins.install("second", ADD=BANANA, DEL=[BANANA, BANANA, {}])
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    (note,) = caught.value.__notes__
    assert "banana" in note
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "second DEL", "first DEL"]
    (kept,) = await scene.runtime.attachments()
    assert kept.result == RESULT
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()


async def test_a_rejected_configuration_leaves_no_pending_delete(scene: Scene) -> None:
    """A plugin that rejects ADD and DEL with code 7 has made nothing."""
    rejected: JsonObject = {"error": {"code": 7, "msg": "no such mode"}}
    scene.plugins.install("second", ADD=rejected, DEL=rejected)
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert not hasattr(caught.value, "__notes__")
    assert await scene.runtime.attachments() == ()


async def test_an_add_that_runs_no_plugin_is_not_cached(scene: Scene) -> None:
    """An ADD rejected before its first plugin needs no DEL."""
    with pytest.raises(InvalidParameter):
        await scene.runtime.add(BLUE, replace(ATTACHMENT, netns=""))
    (scene.plugins.directory / "second").unlink()
    with pytest.raises(PluginNotFound):
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()
    assert scene.calls == []


async def test_no_plugin_runs_if_the_attachment_cannot_be_cached(scene: Scene, tmp_path: Path) -> None:
    """With an unusable cache ADD raises CacheError, and runs nothing."""
    (tmp_path / "results").write_bytes(b"")
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    with pytest.raises(CacheError):
        await runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == []


async def test_an_add_whose_result_cannot_be_cached_is_undone(scene: Scene, tmp_path: Path) -> None:
    """ADD raises CacheError; its DEL receives the result all the same."""

    class FullCache(FileCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            if cached.result is not None:
                raise CacheError(Path("the cache"), "No space left on device")
            await super().put(cached, new=new)

    cache = FullCache(tmp_path / "full")
    runtime = CachedRuntime(scene.stateless, cache)
    with pytest.raises(CacheError, match="No space left"):
        await runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second DEL", "first DEL"]
    assert scene.commands[-1].stdin["prevResult"] == RESULT
    assert await cache.list() == ()


@pytest.mark.parametrize("boot_id", [BOOT, ""])
async def test_a_second_add_is_rejected(scene: Scene, boot_id: str) -> None:
    """CNI forbids it, and undoing it would tear down the first; another ifname is another attachment."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, boot_id=boot_id))
    with pytest.raises(AttachmentExists, match="eth0 of c1 is already attached to blue"):
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD"]
    await scene.runtime.add(BLUE, replace(ATTACHMENT, ifname="eth1"))


async def test_add_deletes_an_attachment_of_an_earlier_boot_first(scene: Scene) -> None:
    """Its namespace is gone, but its addresses are still reserved, and ADD could fail for that."""
    await CachedRuntime(scene.stateless, scene.cache, boot_id="earlier").add(BLUE, ATTACHMENT)
    await scene.runtime.add(BLUE, ATTACHMENT)
    add = ["first ADD", "second ADD"]
    assert scene.calls == [*add, "second DEL", "first DEL", *add]
    (kept,) = await scene.cache.list()
    assert kept.boot_id == BOOT


@pytest.mark.parametrize("boot_id", ["earlier", BOOT])
async def test_a_rejected_del_after_a_power_failure(scene: Scene, boot_id: str) -> None:
    """A record of an earlier boot may lack results that were not written any more: a rejected DEL is not done."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, boot_id=boot_id, added_plugins=0, result=None))
    scene.plugins.install("first", DEL={"error": {"code": 7, "msg": "rejected"}})
    if boot_id == BOOT:
        await scene.runtime.delete(BLUE, ATTACHMENT)
    else:
        with pytest.raises(PluginFailed, match="rejected"):
            await scene.runtime.delete(BLUE, ATTACHMENT)
    assert len(await scene.cache.list()) == (boot_id != BOOT)


async def test_check_without_an_attachment_is_an_error(scene: Scene) -> None:
    """The SPEC forbids it; a list that does not support CHECK, or disables it, is handled first."""
    offering = network(FIRST, cniVersions=["1.0.0", "1.1.0"])
    with pytest.raises(NotAttached, match="eth0 of c1 is not attached to blue: add it first") as caught:
        await scene.runtime.check(offering, ATTACHMENT)
    assert caught.value.code == 3
    for keys in ({}, {"disableCheck": True}):
        old: JsonObject = {"cniVersion": "0.3.1", "cniVersions": ["0.3.0"], **keys}
        with pytest.raises(VerbUnsupported, match="does not support the CHECK command"):
            await scene.runtime.check(network(FIRST, **old), ATTACHMENT)
    await scene.runtime.check(network(FIRST, disableCheck=True), ATTACHMENT)
    assert scene.plugins.calls == ()  # VERSION was not sent either


@pytest.mark.parametrize("added_plugins", [0, 1])
async def test_check_after_an_incomplete_add_is_an_error(scene: Scene, added_plugins: int) -> None:
    """An attachment is cached whose ADD has not completed: the error says to delete it."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, added_plugins=added_plugins, result=RESULT if added_plugins else None))
    before = scene.calls
    with pytest.raises(NotAttached, match="has not completed; delete it, and add it again"):
        await scene.runtime.check(BLUE, ATTACHMENT)
    assert scene.calls == before


def test_the_safe_constructor(scene: Scene, tmp_path: Path) -> None:
    """Running plugins are recorded while they run, first users of iptables are locked, attachments are in files."""
    opened = CachedRuntime.open(scene.plugins.directory, tmp_path / "opened", LIMITS, lock_dir=tmp_path / "lock")
    scene.plugins.install("firewall", ADD={"result": RESULT})
    asyncio.run(opened.add(network({"type": "firewall"}), ATTACHMENT))
    assert (tmp_path / "opened/running").is_dir()
    assert list((tmp_path / "lock").iterdir()) == [tmp_path / "lock/shared-chains.lock"]
    another = CachedRuntime(Runtime("/x"), FileCache(tmp_path / "opened"))
    assert [one.attachment for one in asyncio.run(another.attachments())] == [ATTACHMENT]
