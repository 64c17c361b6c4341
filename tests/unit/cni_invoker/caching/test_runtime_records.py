# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The cached runtime with records that are damaged, incomplete, or written by libcni."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import Attachment, CachedAttachment, CachedRuntime, FileCache
from cni_invoker.errors import BadResult, CacheError, InvalidParameter
from tests.unit.cni_invoker.cached_scene import ATTACHMENT, BLUE, FIRST, RESULT, Scene, network


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
