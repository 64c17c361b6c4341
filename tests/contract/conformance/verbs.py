# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about CHECK, DEL and STATUS with the cached values of an attachment."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_object, get_str, get_strings, render_json
from cni_invoker import CniError, PluginFailed
from cni_invoker.errors import CacheDamaged, VerbUnsupported
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, three_plugins

__all__ = ["RUNNERS"]

RESULT: Final[JsonObject] = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}


async def added(scene: Scene, version: str = "1.1.0", *, result: JsonObject = RESULT) -> None:
    """Add an attachment with three plugins, and forget their calls."""
    scene.install("one", "noop", "three", ADD={"result": {**result, "cniVersion": version}})
    await scene.cached_runtime().add(three_plugins(version), ATTACHMENT)
    scene.forget_calls()


async def check(case: Case, scene: Scene) -> None:
    """CHECK runs the plugins in their order, with the result of ADD."""
    await added(scene, result=get_object(case.inputs, "cache"))
    await scene.cached_runtime().check(three_plugins(), ATTACHMENT)
    assert scene.calls == (("one", "CHECK"), ("noop", "CHECK"), ("three", "CHECK"))
    assert [stdin["prevResult"] for stdin in scene.stdins] == [get_object(case.inputs, "cache")] * 3
    assert [stdin["runtimeConfig"] for stdin in scene.stdins if "runtimeConfig" in stdin] == []


async def check_too_early(case: Case, scene: Scene) -> None:
    """Versions before 0.4.0 have no CHECK, whether it is disabled or not; if it is disabled, no plugin runs."""
    version = get_str(case.inputs, "version")
    scene.install("one", "noop", "three")
    for keys in ({}, {"disableCheck": True}):
        with pytest.raises(VerbUnsupported) as caught:
            await scene.cached_runtime().check(three_plugins(version, keys), ATTACHMENT)
        case.expects("error_text", str(caught.value))
    await scene.cached_runtime().check(three_plugins("1.0.0", {"disableCheck": True}), ATTACHMENT)
    assert scene.calls == ()


async def check_of_old(case: Case, scene: Scene) -> None:
    """A cache file older than `cniCacheV1` is the bare result; of a newer one plugins receive only the result."""
    scene.install("one", "noop", "three")
    scene.write_cache(render_json(RESULT))
    await scene.cached_runtime().check(three_plugins(), ATTACHMENT)
    assert [stdin["prevResult"] for stdin in scene.stdins] == [RESULT] * 3
    scene.install("one", "noop", "three", ADD={"result": RESULT})
    newer = replace(ATTACHMENT, container_id="newer")
    await scene.cached_runtime().add(three_plugins(), newer)
    scene.forget_calls()
    await scene.cached_runtime().check(three_plugins(), newer)
    leaked = set(get_strings(case.expect, "not_leaked_keys"))
    assert leaked == {"kind", "config"}
    assert [leaked & get_object(stdin, "prevResult").keys() for stdin in scene.stdins] == [set()] * 3


async def check_of_other_versions(case: Case, scene: Scene) -> None:
    """A cached result is converted to the list's version, or its version is refused."""
    scene.install("one", "noop", "three")
    old: JsonObject = {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}
    scene.write_cache(render_json(old))
    await scene.cached_runtime().check(three_plugins(get_str(case.inputs, "config")), ATTACHMENT)
    assert [stdin["prevResult"] for stdin in scene.stdins] == [RESULT] * 3
    scene.forget_calls()
    scene.write_cache(render_json({**old, "cniVersion": "0.4567.0"}))
    with pytest.raises(CniError) as caught:
        await scene.cached_runtime().check(three_plugins(), ATTACHMENT)
    case.expects("0.4567.0", str(caught.value))
    scene.write_cache(b"garbage")
    with pytest.raises(CacheDamaged):
        await scene.cached_runtime().check(three_plugins(), ATTACHMENT)
    assert scene.calls == ()


async def failing_check(case: Case, scene: Scene) -> None:
    """The first error ends CHECK."""
    assert case.expect["stops"] is True
    await added(scene)
    scene.install("noop", CHECK={"error": {"code": 999, "msg": "banana"}})
    with pytest.raises(PluginFailed, match=r'plugin type="noop" failed \(check\): banana'):
        await scene.cached_runtime().check(three_plugins(), ATTACHMENT)
    assert scene.calls == (("one", "CHECK"), ("noop", "CHECK"))


async def delete(case: Case, scene: Scene) -> None:
    """DEL runs the plugins in reverse, with the result of ADD; then the cache file is removed."""
    assert case.expect["cache_removed"] is True
    await added(scene)
    await scene.cached_runtime().delete(three_plugins(), ATTACHMENT)
    assert scene.calls == (("three", "DEL"), ("noop", "DEL"), ("one", "DEL"))
    assert [stdin["prevResult"] for stdin in scene.stdins] == [RESULT] * 3
    assert await scene.cache.list() == ()


async def delete_of_old(case: Case, scene: Scene) -> None:
    """Plugins older than 0.4.0 receive no result with DEL."""
    version = get_str(case.inputs, "version")
    await added(scene, version, result={"ips": [{"version": "4", "address": "10.1.2.3/24"}]})
    await scene.cached_runtime().delete(three_plugins(version), ATTACHMENT)
    assert len(scene.calls) == 3
    assert not any("prevResult" in stdin for stdin in scene.stdins)


async def delete_of_damaged(case: Case, scene: Scene) -> None:
    """A damaged cache file does not prevent DEL, and is removed."""
    assert case.expect["tolerated"] is case.expect["cache_removed"] is True
    scene.install("one", "noop", "three")
    for data in (b"garbage", render_json({**RESULT, "cniVersion": "0.4567.0"})):
        file = scene.write_cache(data)
        await scene.cached_runtime().delete(three_plugins(), ATTACHMENT)
        assert not file.exists()
    assert len(scene.calls) == 6
    assert not any("prevResult" in stdin for stdin in scene.stdins)


async def delete_twice(case: Case, scene: Scene) -> None:
    """DEL may be repeated; the second time plugins receive no result."""
    assert case.expect["both_succeed"] is True
    await added(scene)
    for _ in range(2):
        await scene.cached_runtime().delete(three_plugins(), ATTACHMENT)
    assert ["prevResult" in stdin for stdin in scene.stdins] == [True] * 3 + [False] * 3


async def failing_delete(case: Case, scene: Scene) -> None:
    """A plugin that fails ends DEL, and the cache file is kept.

    An address must not become free while rules for it still exist.
    """
    assert case.expect["cache_kept"] is True
    await added(scene)
    message = get_str(get_object(case.plugin, "2"), "error")
    scene.install("noop", DEL={"error": {"code": 999, "msg": message}})
    with pytest.raises(PluginFailed) as caught:
        await scene.cached_runtime().delete(three_plugins(), ATTACHMENT)
    case.expects("error_prefix", str(caught.value))
    assert caught.value.msg == message
    assert ("one", "DEL") not in scene.calls
    assert len(await scene.cache.list()) == 1


async def replayed(case: Case, scene: Scene) -> None:
    """CHECK and DEL receive the capability args of ADD, whatever their caller passes."""
    assert get_str(case.expect, "requirement").endswith("stored and replayed on DEL and CHECK")
    scene.install("one", "noop", "portmap", ADD={"result": RESULT})
    plugins: JsonValue = [{"type": "noop"}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    wanted = three_plugins("1.1.0", {"plugins": plugins})
    await scene.cached_runtime().add(wanted, ATTACHMENT)
    changed = replace(ATTACHMENT, capability_args={}, args=(), netns="/other")
    await scene.cached_runtime().check(wanted, changed)
    await scene.cached_runtime().delete(wanted, changed)
    commands = [command for command in scene.commands if command.plugin == "portmap"]
    assert [command.verb for command in commands] == ["ADD", "CHECK", "DEL"]
    for command in commands:
        assert command.stdin["runtimeConfig"] == ATTACHMENT.capability_args
        assert command.environment["CNI_ARGS"] == "FOO=BAR"
        assert command.environment["CNI_NETNS"] == ATTACHMENT.netns


async def vanished_namespace(_: Case, scene: Scene) -> None:
    """DEL receives the path of ADD, even if the namespace no longer exists, never an empty path.

    Making a replacement namespace is left to the caller: `cnm_bridge` does so.
    """
    await added(scene)
    gone = replace(ATTACHMENT, netns="")
    await scene.cached_runtime().delete(three_plugins(), gone)
    assert {command.environment["CNI_NETNS"] for command in scene.commands} == {ATTACHMENT.netns}


async def status(case: Case, scene: Scene) -> None:
    """STATUS runs the plugins in their order, without an attachment; the first error ends it."""
    assert case.expect["runtimeConfig"] == "absent"
    scene.install("one", "noop", "three")
    await scene.runtime().status(three_plugins())
    assert scene.calls == (("one", "STATUS"), ("noop", "STATUS"), ("three", "STATUS"))
    assert all(set(stdin) == {"type", "name", "cniVersion"} for stdin in scene.stdins)
    scene.install("noop", STATUS={"error": {"code": 50, "msg": "not available"}})
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime().status(three_plugins())
    assert caught.value.code == 50
    assert ("three", "STATUS") not in scene.calls[3:]


async def status_of_old(case: Case, scene: Scene) -> None:
    """Versions before 1.1.0 have no STATUS: it succeeds, and no plugin runs."""
    assert case.expect["executed"] == 0
    scene.install("one", "noop", "three")
    await scene.runtime().status(three_plugins(get_str(case.inputs, "version")))
    assert scene.calls == ()


async def one_by_one(_: Case, scene: Scene) -> None:
    """Operations on one container run one after the other, on different containers at the same time."""
    scene.install("one", "noop", "three")
    scene.install("one", ADD={"sleep_s": 0.3})
    runtime = scene.runtime()

    async def add(*container_ids: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, container_id in enumerate(container_ids):
                attachment = replace(ATTACHMENT, container_id=container_id, ifname=f"eth{number}")
                tasks.create_task(runtime.add(three_plugins(), attachment))

    await add("same", "same")
    assert [plugin for plugin, _ in scene.calls] == ["one", "noop", "three"] * 2
    scene.forget_calls()
    await add("this", "that")
    assert [plugin for plugin, _ in scene.calls[:2]] == ["one", "one"]


RUNNERS: Final[Mapping[str, Runner]] = {
    "chk-001": check,
    "chk-003": check_too_early,
    "chk-004": check_of_old,
    "chk-006": check_of_other_versions,
    "chk-007": failing_check,
    "del-001": delete,
    "del-003": delete_of_old,
    "del-004": delete_of_damaged,
    "del-006": delete_twice,
    "del-007": failing_delete,
    "del-010": replayed,
    "del-012": vanished_namespace,
    "st-001": status,
    "st-003": status_of_old,
    "conc-001": one_by_one,
}
