# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a runtime makes of what it remembers: damaged, lost, or kept by libcni."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    BadConfiguration,
    BadResult,
    CacheDamaged,
    CachedAttachment,
    CachedRuntime,
    CacheUnknown,
    FileCache,
    InvalidParameter,
    NetworkConfigurationList,
    PluginFailed,
)
from spec import JsonObject, JsonValue
from tests.unit.cni_invoker.cached_scene import ATTACHMENT, BANANA, BLUE, FIRST, RESULT, Scene, network


async def test_a_failed_delete_is_remembered(scene: Scene) -> None:
    """DEL stops at a plugin that fails; it can be repeated with all that it needs."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    scene.plugins.install("second", DEL=BANANA)
    with pytest.raises(PluginFailed, match=r'plugin type="second" failed \(delete\): plugin error: banana'):
        await scene.runtime.delete(BLUE, ATTACHMENT)
    assert "first DEL" not in scene.calls
    (kept,) = await scene.runtime.attachments()
    assert kept.result == RESULT


async def test_a_damaged_memory(scene: Scene, tmp_path: Path) -> None:
    """CHECK says so; DEL goes on with what it is given, and ends it."""
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    file = tmp_path / "results" / "blue-c1-eth0"
    file.parent.mkdir()
    file.write_bytes(b"garbage")
    with pytest.raises(CacheDamaged):
        await runtime.check(BLUE, ATTACHMENT)
    assert scene.calls == []
    await runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls == ["second DEL", "first DEL"]
    assert "prevResult" not in scene.commands[0].stdin
    assert not file.exists()


async def test_a_memory_of_an_unknown_kind(scene: Scene, tmp_path: Path) -> None:
    """Somebody else understands it: nothing runs, nothing changes, unless it is forced."""
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    file = tmp_path / "results" / "blue-c1-eth0"
    file.parent.mkdir()
    file.write_bytes(b'{"kind":"cniCacheV2"}')
    for attempt in (runtime.add, runtime.delete, runtime.check):
        with pytest.raises(CacheUnknown, match="delete the attachment with the program that wrote it"):
            await attempt(BLUE, ATTACHMENT)
    assert scene.calls == []
    assert file.read_bytes() == b'{"kind":"cniCacheV2"}'
    await runtime.delete(BLUE, ATTACHMENT, force=True)
    assert scene.calls == ["second DEL", "first DEL"]
    assert not file.exists()


async def test_an_argument_that_add_does_not_take(scene: Scene) -> None:
    """What another runtime has added with it is deleted with it."""
    odd = replace(ATTACHMENT, args=(("K", "a=b"),))
    with pytest.raises(InvalidParameter, match="'='"):
        await scene.runtime.add(BLUE, odd)
    assert scene.calls == []
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, attachment=odd))
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.commands[-1].environment["CNI_ARGS"] == "K=a=b"


async def test_a_result_of_a_version_nobody_knows(scene: Scene) -> None:
    """CHECK says so; DEL goes on without it."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, result={"cniVersion": "0.4567.0"}))
    with pytest.raises(BadResult, match=r'unsupported CNI result version "0\.4567\.0"'):
        await scene.runtime.check(BLUE, ATTACHMENT)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert "prevResult" not in scene.commands[-1].stdin
    assert await scene.cache.list() == ()


@pytest.mark.parametrize("configuration", [None, {"name": "blue", "plugins": "none"}])
async def test_a_lost_list(scene: Scene, configuration: JsonObject | None) -> None:
    """Arguments and result are still used, with the list as it is now; without one there is no DEL."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    lost = replace(kept, configuration=configuration)
    await scene.cache.put(lost)
    with pytest.raises(BadConfiguration, match="has not been kept"):
        await scene.runtime.delete_cached(lost)
    await scene.runtime.delete(network(FIRST), replace(ATTACHMENT, args=()))
    assert scene.calls[2:] == ["first DEL"]
    assert scene.commands[-1].environment["CNI_ARGS"] == "K=V"
    assert scene.commands[-1].stdin["prevResult"] == RESULT


async def test_the_configuration_of_one_plugin(scene: Scene) -> None:
    """What libcni's AddNetwork has kept is no list, and is understood."""
    single: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "type": "first"}
    await scene.cache.put(
        CachedAttachment(network="blue", attachment=ATTACHMENT, configuration=single, result=None, boot_id="")
    )
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls == ["first DEL"]


async def test_what_libcni_keeps_without_the_namespace(scene: Scene) -> None:
    """Before 1.2 it keeps none: the caller's is used, with the list and arguments that have been kept."""
    kept = replace(ATTACHMENT, netns="")
    await scene.cache.put(
        CachedAttachment(network="blue", attachment=kept, configuration=BLUE.document, result=RESULT, boot_id="")
    )
    forgetful = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/given")
    await scene.runtime.check(network({"type": "edited"}), forgetful)
    await scene.runtime.delete(network({"type": "edited"}), forgetful)
    assert scene.calls == ["first CHECK", "second CHECK", "second DEL", "first DEL"]
    for command in scene.commands:
        assert command.environment["CNI_NETNS"] == "/run/netns/given"
        assert command.environment["CNI_ARGS"] == "K=V"
        assert command.stdin.get("runtimeConfig") == ({"mac": "02::"} if command.plugin == "first" else None)


async def test_gc_of_what_libcni_keeps_without_the_namespace(scene: Scene) -> None:
    """Where nobody tells the namespace the result does: without it `bridge` leaves its masquerading behind."""
    interfaces: list[JsonValue] = [
        {"name": "eth0"},
        {"name": "eth0", "sandbox": ""},
        {"name": "other", "sandbox": "/run/netns/other"},
        {"name": "eth0", "sandbox": "/run/netns/told"},
    ]
    await scene.cache.put(
        CachedAttachment(
            network="blue",
            attachment=replace(ATTACHMENT, netns=""),
            configuration=network(FIRST).document,
            result={**RESULT, "interfaces": interfaces},
            boot_id="",
        )
    )
    await scene.runtime.gc(BLUE, ())
    assert scene.calls[0] == "first DEL"
    assert scene.commands[0].environment["CNI_NETNS"] == "/run/netns/told"


async def test_delete_without_a_configuration(scene: Scene) -> None:
    """What is remembered is enough, when the network is gone from the configuration directory."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.runtime.attachments()
    await scene.runtime.delete_cached(kept)
    assert scene.calls[2:] == ["second DEL", "first DEL"]
    assert await scene.runtime.attachments() == ()


@pytest.mark.parametrize(
    ("kept", "deletes"),
    [
        ({}, ["second DEL", "first DEL"]),
        ({"loadOnlyInlinedPlugins": True}, ["first DEL"]),
        ({"plugins": [{"type": "first", "edited": True}]}, ["first DEL"]),
    ],
)
async def test_plugins_that_libcni_does_not_keep(scene: Scene, kept: JsonObject, deletes: list[str]) -> None:
    """Those from other files come from the list of now, as long as the rest of it is what it was."""
    inlined: JsonObject = {"name": "blue", "cniVersion": "1.1.0", "plugins": [FIRST]}
    now = NetworkConfigurationList.from_document(inlined, further=[{"type": "second"}])
    await scene.cache.put(
        CachedAttachment(
            network="blue", attachment=ATTACHMENT, configuration={**inlined, **kept}, result=RESULT, boot_id=""
        )
    )
    await scene.runtime.delete(now, ATTACHMENT)
    assert scene.calls == deletes
    assert [command.stdin["prevResult"] for command in scene.commands] == [RESULT] * len(deletes)
