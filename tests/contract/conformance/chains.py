# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about ADD, DEL and old plugins: which plugins run, in which order, with which input."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_object, get_str
from cni_invoker import NetworkConfigurationList, PluginFailed
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network, three_plugins

__all__ = ["RUNNERS"]

RESULT: Final[JsonObject] = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
BANANA: Final[JsonObject] = {"error": {"code": 999, "msg": "plugin error: banana"}}


async def in_order(case: Case, scene: Scene) -> None:
    """Plugins run in their order, each receives the result of the previous one, and the last result counts."""
    scene.install("one", ADD={"result": RESULT})
    scene.install("noop", ADD={"passthrough": True})
    scene.install("three", ADD={"inject_dns": {"nameservers": ["1.2.3.4"]}})
    result = await scene.runtime().add(three_plugins(), ATTACHMENT)
    assert case.expect["order"] == [1, 2, 3]
    assert scene.calls == (("one", "ADD"), ("noop", "ADD"), ("three", "ADD"))
    assert [command.stdin.get("prevResult") for command in scene.commands] == [None, RESULT, RESULT]
    assert result.document == {**RESULT, "dns": {"nameservers": ["1.2.3.4"]}}
    for command in scene.commands:
        assert (command.stdin["name"], command.stdin["cniVersion"]) == ("some-list", "1.1.0")
        assert command.environment == scene.commands[0].environment


async def failing_add(case: Case, scene: Scene) -> None:
    """The first error ends ADD and names the plugin."""
    scene.install("one", "noop", "three")
    scene.install("noop", ADD=case.plugin["2"])
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime().add(three_plugins(), ATTACHMENT)
    case.expects("error_prefix", str(caught.value))
    assert caught.value.msg == case.expect["cause"]
    assert scene.calls == (("one", "ADD"), ("noop", "ADD"))


async def undone_add(_: Case, scene: Scene) -> None:
    """After a failed ADD the whole list is deleted in reverse, with the last result before the failure.

    This is the cached runtime. The plain one leaves it to its caller, which may first have to restore the namespace for
    the plugins' DEL.
    """
    scene.install("one", ADD={"result": RESULT})
    scene.install("noop", ADD=BANANA)
    scene.install("three")
    with pytest.raises(PluginFailed, match="banana"):
        await scene.cached_runtime().add(three_plugins(), ATTACHMENT)
    assert scene.calls == (
        *(("one", "ADD"), ("noop", "ADD")),
        *(("three", "DEL"), ("noop", "DEL"), ("one", "DEL")),
    )
    assert [stdin["prevResult"] for stdin in scene.stdins[2:]] == [RESULT] * 3
    assert await scene.cache.list() == ()


async def retried_delete(case: Case, scene: Scene) -> None:
    """DEL of a plugin that fails because something is already missing runs once more."""
    scene.install("one", "three")
    scene.install("noop", DEL=[{"error": {"code": 999, "msg": get_str(case.plugin, "msg")}}, {}])
    await scene.runtime().delete(three_plugins(), ATTACHMENT, None)
    assert scene.calls == (("three", "DEL"), ("noop", "DEL"), ("noop", "DEL"), ("one", "DEL"))


async def first_specification(case: Case, scene: Scene) -> None:
    """Result and DEL of a plugin of CNI 0.1.0 work."""
    document = {**get_object(case.inputs, "config"), "type": "v010"}
    scene.install("v010", ADD={"result": {"ip4": {"ip": "10.1.2.3/24", "gateway": "10.1.2.1"}, "dns": {}}})
    old = NetworkConfigurationList.from_plugin_document(document)
    result = await scene.runtime().add(old, ATTACHMENT)
    assert (result.cni_version, str(result.ips[0].address)) == ("0.1.0", "10.1.2.3/24")
    await scene.runtime().delete(old, ATTACHMENT, result)
    assert scene.calls == (("v010", "ADD"), ("v010", "DEL"))


async def first_users(_: Case, scene: Scene) -> None:
    """The first ADD of a plugin with shared chains runs alone; after it the others run at once."""
    count = 16
    scene.install("portmap", ADD=[{"sleep_s": 0.3}, {}])
    runtime = scene.runtime()
    portmap = network({"type": "portmap", "capabilities": {"portMappings": True}})
    ended: list[int] = []

    async def add(number: int) -> None:
        await runtime.add(portmap, replace(ATTACHMENT, container_id=f"c{number}"))
        ended.append(number)
        if len(ended) == 1:
            first.append(len(scene.commands))

    first: list[int] = []
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(add(number))
    assert first == [1]
    assert len(ended) == count


RUNNERS: Final[Mapping[str, Runner]] = {
    "add-001": in_order,
    "add-004": failing_add,
    "add-007": undone_add,
    "del-009": retried_delete,
    "compat-001": first_specification,
    "conc-002": first_users,
}
