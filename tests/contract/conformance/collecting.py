# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about GC: stale attachments are deleted, plugins receive the valid ones, and these cannot be omitted."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_str, get_strings
from cni_invoker import CachedAttachment, PluginFailed
from cni_invoker.errors import GcFailed, PluginNotFound
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, three_plugins

__all__ = ["RUNNERS"]

RESULT: Final[JsonObject] = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
STALE: Final = replace(ATTACHMENT, container_id="stale", netns="/stale/netns", args=(("STALE", "1"),))


async def remember(scene: Scene, version: str = "1.1.0") -> None:
    """Put a stale attachment into the cache."""
    scene.install("one", "noop", "three")
    await scene.cache.put(
        CachedAttachment(
            network="some-list",
            attachment=STALE,
            configuration=three_plugins(version).document,
            result={**RESULT, "cniVersion": version},
            boot_id=scene.boot_id,
        )
    )


async def gc_disabled(case: Case, scene: Scene) -> None:
    """With `disableGC` no plugin runs, whatever is stale."""
    assert case.expect["executed"] == 0
    await remember(scene)
    await scene.cached_runtime().gc(three_plugins("1.1.0", {"disableGC": True}), ())
    assert scene.calls == ()
    assert len(await scene.cache.list()) == 1


async def gc_stale(case: Case, scene: Scene) -> None:
    """A stale attachment is deleted with the cached values; then the plugins receive the valid attachments."""
    assert get_strings(case.expect, "commands") == ("DEL", "GC")
    await remember(scene)
    await scene.cached_runtime().gc(three_plugins(), ())
    assert scene.calls == (
        *(("three", "DEL"), ("noop", "DEL"), ("one", "DEL")),
        *(("one", "GC"), ("noop", "GC"), ("three", "GC")),
    )
    for command in scene.commands[:3]:
        assert command.environment["CNI_NETNS"] == STALE.netns
        assert command.environment["CNI_ARGS"] == "STALE=1"
    for stdin in scene.stdins[3:]:
        assert stdin["cni.dev/valid-attachments"] == stdin["cni.dev/attachments"] == []
    assert await scene.cache.list() == ()


async def gc_valid(case: Case, scene: Scene) -> None:
    """The valid attachments are a required argument: omitting it cannot mean that all are stale."""
    assert get_str(case.expect, "improved").startswith("refuse")
    await remember(scene)
    with pytest.raises(TypeError, match="valid"):
        await scene.cached_runtime().gc(three_plugins())  # type: ignore[call-arg]  # the omission under test
    assert not scene.commands
    await scene.cached_runtime().gc(three_plugins(), [STALE.key])
    assert scene.calls == (("one", "GC"), ("noop", "GC"), ("three", "GC"))
    valid: JsonValue = [{"containerID": "stale", "ifname": "eth0"}]
    assert all(stdin["cni.dev/valid-attachments"] == valid for stdin in scene.stdins)


async def gc_of_old(case: Case, scene: Scene) -> None:
    """Versions before 1.1.0 have no GC: stale attachments are deleted all the same."""
    await remember(scene, get_str(case.inputs, "version"))
    await scene.cached_runtime().gc(three_plugins(get_str(case.inputs, "version")), ())
    assert get_strings(case.expect, "commands") == ("DEL",)
    assert scene.calls == (("three", "DEL"), ("noop", "DEL"), ("one", "DEL"))


async def gc_goes_on(_: Case, scene: Scene) -> None:
    """A plugin whose GC fails is reported, and GC of the others runs."""
    await remember(scene)
    (scene.plugins.directory / "noop").unlink()
    scene.install("one", GC={"error": {"code": 999, "msg": "banana"}})
    with pytest.raises(GcFailed) as caught:
        await scene.cached_runtime().gc(three_plugins(), [STALE.key])
    assert [type(error) for error in caught.value.errors] == [PluginFailed, PluginNotFound]
    assert ("three", "GC") in scene.calls


async def gc_alone(_: Case, scene: Scene) -> None:
    """GC and ADD wait for each other; an attachment that is being added is not stale."""
    await remember(scene)
    scene.install("one", ADD={"sleep_s": 0.3, "result": RESULT}, GC={"sleep_s": 0.3})
    runtime = scene.cached_runtime()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(three_plugins(), ATTACHMENT))
        await scene.wait_for_call("one", "ADD")
        tasks.create_task(runtime.gc(three_plugins(), [STALE.key]))
        await scene.wait_for_call("one", "GC")
        tasks.create_task(runtime.add(three_plugins(), replace(ATTACHMENT, container_id="late")))
    assert scene.calls == (
        *(("one", "ADD"), ("noop", "ADD"), ("three", "ADD")),
        *(("one", "GC"), ("noop", "GC"), ("three", "GC")),
        *(("one", "ADD"), ("noop", "ADD"), ("three", "ADD")),
    )
    valid = scene.stdins[3]["cni.dev/valid-attachments"]
    assert isinstance(valid, list)
    assert {"containerID": ATTACHMENT.container_id, "ifname": "eth0"} in valid


RUNNERS: Final[Mapping[str, Runner]] = {
    "gc-001": gc_disabled,
    "gc-003": gc_stale,
    "gc-004": gc_of_old,
    "gc-006": gc_valid,
    "gc-007": gc_goes_on,
    "gc-009": gc_alone,
}
