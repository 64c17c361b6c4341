# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A DEL of the cached runtime resumes where it stopped, with whatever record, and keeps what belongs to another."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, AttachmentKey, PluginFailed, Runtime
from cni_invoker.errors import BadResult, InvalidParameter, NetworkBusy
from cni_tool import CacheDamaged, CachedAttachment, CachedRuntime, CacheError, FileCache, NotAttached
from extras.cni_tool.tests.unit.cached_scene import (
    ATTACHMENT,
    BANANA,
    BLUE,
    BOOT,
    FIRST,
    KEY,
    LIMITS,
    RESULT,
    Scene,
    network,
)

WALLED = network(FIRST, {"type": "firewall"})
OTHER = replace(ATTACHMENT, container_id="c2")
ELSEWHERE: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.9.9.9/24"}]}


async def test_a_repeated_delete_retries_a_failed_removal_of_the_record(scene: Scene, tmp_path: Path) -> None:
    """If only the removal has failed, no plugin runs again."""

    class Stubborn(FileCache):
        failures = 2

        async def remove(self, network: str, key: AttachmentKey, *, force: bool = False) -> None:
            if self.failures:
                self.failures -= 1
                raise CacheError(Path("the cache"), "Read-only file system")
            await super().remove(network, key, force=force)

    cache = Stubborn(tmp_path / "x")
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    with pytest.raises(CacheError, match="Read-only"):
        await runtime.delete(BLUE, ATTACHMENT)
    before = len(scene.calls)
    await runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls[before:] == []
    assert await cache.list() == ()


async def test_a_delete_continues_if_its_progress_cannot_be_stored(
    scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk must not prevent addresses from being freed; the error is logged."""

    class Full(FileCache):
        full = False

        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            if self.full:
                raise CacheError(Path("the cache"), "No space left on device")
            await super().put(cached, new=new)

    cache = Full(tmp_path / "x")
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    cache.full = True
    await runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls[-2:] == ["second DEL", "first DEL"]
    assert await cache.list() == ()
    assert "cache.progress_not_stored" in [record.__dict__["event"] for record in caplog.records]


async def test_check_during_a_pending_delete_is_an_error(scene: Scene) -> None:
    """Plugins would report what has already been deleted."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    scene.plugins.install("second", DEL=BANANA)
    with pytest.raises(PluginFailed):
        await scene.runtime.delete(BLUE, ATTACHMENT)
    with pytest.raises(NotAttached, match="its ADD or its DEL has not completed"):
        await scene.runtime.check(BLUE, ATTACHMENT)


async def delete_walled(scene: Scene) -> bool:
    """Delete c1, and return whether the firewall received its addresses."""
    before = len(scene.commands)
    await scene.runtime.delete(WALLED, ATTACHMENT)
    received = {command.plugin: "prevResult" in command.stdin for command in scene.commands[before:]}
    assert received["first"]
    return received["firewall"]


async def test_rules_that_belong_to_another_attachment_stay(scene: Scene) -> None:
    """`firewall` finds its rules by address alone, so it does not receive an address that another container has now."""
    scene.plugins.install("firewall", ADD={"passthrough": True})
    await scene.runtime.add(WALLED, ATTACHMENT)
    red = network({"type": "first"}, {"type": "firewall"}, name="red")
    await scene.runtime.add(red, OTHER)
    assert not await delete_walled(scene)


async def test_rules_are_removed_if_the_other_attachment_has_no_firewall(scene: Scene) -> None:
    """The other attachment needs no rules, and its DEL would never remove them."""
    scene.plugins.install("firewall", ADD={"passthrough": True})
    await scene.runtime.add(WALLED, ATTACHMENT)
    await scene.runtime.add(network({"type": "first"}, name="red"), OTHER)
    assert await delete_walled(scene)


async def test_rules_stay_if_an_attachment_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    """That attachment may have the address: DEL fails and can be repeated; a forced DEL runs without the result."""
    scene.plugins.install("firewall", ADD={"passthrough": True})
    cache = FileCache(tmp_path)
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    await runtime.add(WALLED, ATTACHMENT)
    (tmp_path / "results" / "red-c2-eth0").write_bytes(b"garbage")
    with pytest.raises(CacheDamaged, match="red-c2-eth0"):
        await runtime.delete(WALLED, ATTACHMENT)
    assert scene.calls == ["first ADD", "firewall ADD"]
    assert await cache.find("blue", KEY) is not None
    await runtime.delete(WALLED, ATTACHMENT, force=True)
    assert scene.calls[2:] == ["firewall DEL", "first DEL"]
    assert "prevResult" not in scene.commands[2].stdin
    assert await cache.find("blue", KEY) is None


async def test_a_delete_that_timed_out_waiting_has_not_begun(scene: Scene) -> None:
    """If no plugin has run because another operation held the lock, CHECK still works."""
    runtime = Runtime([scene.plugins.directory], replace(LIMITS, wait_s=0.05))
    remembering = CachedRuntime(runtime, scene.cache, boot_id=BOOT)
    await remembering.add(BLUE, ATTACHMENT)
    scene.plugins.install("first", GC={"sleep_s": 0.5})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.gc(BLUE, [KEY]))
        await asyncio.sleep(0)
        with pytest.raises(NetworkBusy):
            await remembering.delete(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    assert kept.deleted is None
    await remembering.check(BLUE, ATTACHMENT)


@pytest.mark.parametrize(
    "other",
    [
        {"result": ELSEWHERE},
        {"result": None},
        {"boot_id": "another boot"},
        {"deleted": frozenset()},
        {"deleted": frozenset({1})},
    ],
    ids=["another address", "no address", "from an earlier boot", "its DEL has begun", "half deleted"],
)
async def test_rules_are_removed_if_no_other_attachment_needs_them(scene: Scene, other: dict[str, object]) -> None:
    """An attachment with another address, from an earlier boot, or whose DEL has begun needs no rules."""
    scene.plugins.install("firewall", ADD={"passthrough": True})
    await scene.runtime.add(WALLED, ATTACHMENT)
    mine = await scene.cache.find("blue", KEY)
    assert mine is not None
    await scene.cache.put(replace(mine, **{"attachment": OTHER, **other}))  # type: ignore[arg-type]
    assert await delete_walled(scene)


async def test_a_forced_delete_without_a_record(scene: Scene) -> None:
    """The plugins run with the caller's list and arguments."""
    scene.plugins.install("second", DEL=BANANA)
    await scene.runtime.delete(BLUE, Attachment(container_id="c9", ifname="eth0", netns=""), force=True)
    assert scene.calls == ["second DEL", "second DEL", "first DEL"]


async def test_other_plugins_always_receive_the_result(scene: Scene) -> None:
    """Only plugins that find their rules by address alone receive no result when the address is in use."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    await scene.runtime.add(BLUE, OTHER)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert [command.stdin["prevResult"] for command in scene.commands[-2:]] == [RESULT] * 2


async def test_a_record_of_an_unknown_kind(scene: Scene, tmp_path: Path) -> None:
    """Another program's attachment is neither replaced nor deleted, and no plugin runs, unless that is forced."""
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    file = tmp_path / "results" / "blue-c1-eth0"
    file.parent.mkdir()
    file.write_bytes(b'{"kind":"cniCacheV2"}')
    for attempt in (runtime.add, runtime.delete, runtime.check):
        with pytest.raises(CacheError, match="delete the attachment with the program that wrote it"):
            await attempt(BLUE, ATTACHMENT)
    assert scene.calls == []
    assert file.read_bytes() == b'{"kind":"cniCacheV2"}'
    await runtime.delete(BLUE, ATTACHMENT, force=True)
    assert {command.verb for command in scene.commands} == {"DEL"}
    assert not file.exists()


async def test_delete_accepts_a_stored_argument_that_add_rejects(scene: Scene) -> None:
    """Another runtime may have added the attachment with it."""
    odd = replace(ATTACHMENT, args=(("K", "a=b"),))
    with pytest.raises(InvalidParameter, match="'='"):
        await scene.runtime.add(BLUE, odd)
    assert scene.calls == []
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, attachment=odd))
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.commands[-1].environment["CNI_ARGS"] == "K=a=b"


async def test_a_cached_result_of_an_unknown_version(scene: Scene) -> None:
    """CHECK raises BadResult; DEL runs without prevResult."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, result={"cniVersion": "0.4567.0"}))
    with pytest.raises(BadResult, match=r'unsupported CNI result version "0\.4567\.0"'):
        await scene.runtime.check(BLUE, ATTACHMENT)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert "prevResult" not in scene.commands[-1].stdin
    assert await scene.cache.list() == ()


async def test_a_record_of_a_single_plugin_configuration(scene: Scene, tmp_path: Path) -> None:
    """Libcni's AddNetwork stores one plugin configuration instead of a list; DEL understands it."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    file = tmp_path / "cache/results/blue-c1-eth0"
    single = base64.b64encode(b'{"cniVersion": "1.0.0", "name": "blue", "type": "first"}').decode()
    file.write_text(json.dumps({**json.loads(file.read_text()), "config": single}))
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls[2:] == ["first DEL"]


async def test_a_record_without_a_netns_uses_that_of_the_caller(scene: Scene) -> None:
    """Libcni before 1.2 stores none; list and arguments are still those of the record."""
    kept = replace(ATTACHMENT, netns="")
    await scene.cache.put(
        CachedAttachment(network="blue", attachment=kept, configuration=BLUE, result=RESULT, boot_id="")
    )
    forgetful = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/given")
    await scene.runtime.check(network({"type": "edited"}), forgetful)
    await scene.runtime.delete(network({"type": "edited"}), forgetful)
    assert scene.calls == ["first CHECK", "second CHECK", "second DEL", "first DEL"]
    for command in scene.commands:
        assert command.environment["CNI_NETNS"] == "/run/netns/given"
        assert command.environment["CNI_ARGS"] == "K=V"
        assert command.stdin.get("runtimeConfig") == ({"mac": "02::"} if command.plugin == "first" else None)


async def test_gc_of_a_record_without_a_netns_uses_that_of_the_result(scene: Scene) -> None:
    """Without a netns `bridge` would leave its masquerading rules behind."""
    interfaces: list[JsonValue] = [
        {"name": "eth0"},
        {"name": "eth0", "sandbox": ""},
        {"name": "other", "sandbox": "/run/netns/other"},
        {"name": "eth0", "sandbox": "/run/netns/result"},
    ]
    await scene.cache.put(
        CachedAttachment(
            network="blue",
            attachment=replace(ATTACHMENT, netns=""),
            configuration=network(FIRST),
            result={**RESULT, "interfaces": interfaces},
            boot_id="",
        )
    )
    await scene.runtime.gc(BLUE, ())
    assert scene.calls[0] == "first DEL"
    assert scene.commands[0].environment["CNI_NETNS"] == "/run/netns/result"
