# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""ADD over whole lists of plugins."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import PluginFailed, Result, Runtime
from cni_invoker.errors import InvalidParameter, PluginNotFound, VersionUnsupported
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, RESULT, THREE, network


async def test_on_result_runs_before_the_next_plugin(plugins: FakePlugins, runtime: Runtime) -> None:
    """The caller can store each result in time; if that fails, no further plugin runs."""
    plugins.install("third", ADD={"error": {"code": 999, "msg": "banana"}})
    stored: list[tuple[Result, int, int]] = []

    async def remember(result: Result, added_plugins: int) -> None:
        stored.append((result, added_plugins, len(plugins.calls)))

    with pytest.raises(PluginFailed):
        await runtime.add(THREE, ATTACHMENT, on_result=remember)
    assert stored == [(Result.from_document(RESULT), 1, 1), (Result.from_document(RESULT), 2, 2)]

    async def refuse(_: Result, __: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await runtime.add(THREE, ATTACHMENT, on_result=refuse)
    assert plugins.calls[3:] == (("first", "ADD"),)


@pytest.mark.parametrize(
    ("skipped", "ran", "added"),
    [({1}, ["first", "third"], [2, 3]), ({2}, ["first", "second"], [1, 3]), ({1, 2}, ["first"], [3])],
)
async def test_skipped_plugins(
    plugins: FakePlugins, runtime: Runtime, skipped: set[int], ran: list[str], added: list[int]
) -> None:
    """They do not run and count as added; DEL runs them; one that is missing is an error."""
    seen: list[int] = []

    async def remember(_: Result, added_plugins: int) -> None:
        seen.append(added_plugins)

    result = await runtime.add(THREE, ATTACHMENT, on_result=remember, skipped=skipped)
    assert ([name for name, _ in plugins.calls], seen) == (ran, added)
    await runtime.delete(THREE, ATTACHMENT, result)
    assert [name for name, _ in plugins.calls[len(ran) :]] == ["third", "second", "first"]
    missing = network({"type": "first"}, {"type": "absent"})
    with pytest.raises(PluginNotFound):
        await runtime.add(missing, ATTACHMENT, skipped={1})


async def test_add_in_an_unsupported_version_runs_nothing(plugins: FakePlugins, runtime: Runtime) -> None:
    """A list in a version newer than this runtime supports is rejected before the first plugin."""
    with pytest.raises(VersionUnsupported, match=r"1\.2\.3"):
        await runtime.add(network({"type": "first"}, version="1.2.3"), ATTACHMENT)
    assert plugins.calls == ()


async def test_a_result_older_than_0_3_0_is_understood(plugins: FakePlugins, runtime: Runtime) -> None:
    """A result of 0.1.0 is parsed; DEL gets no prevResult in that version."""
    plugins.install("old", ADD={"result": {"ip4": {"ip": "10.1.2.3/24"}}})
    old = network({"type": "old"}, version="")
    result = await runtime.add(old, ATTACHMENT)
    assert (result.cni_version, str(result.ips[0].address)) == ("0.1.0", "10.1.2.3/24")
    await runtime.delete(old, ATTACHMENT, result)
    assert "prevResult" not in plugins.commands[-1].stdin


async def test_results_are_converted_to_the_version_of_the_list(plugins: FakePlugins, runtime: Runtime) -> None:
    """PrevResult has the version of the list, in ADD and DEL; the result is returned and reported as printed."""
    printed: JsonObject = {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}
    converted: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
    plugins.install("first", ADD={"result": printed})
    plugins.install("third", ADD={"result": printed})
    seen: list[JsonObject] = []

    async def remember(result: Result, _: int) -> None:
        seen.append(result.document)

    result = await runtime.add(THREE, ATTACHMENT, on_result=remember)
    assert seen == [printed, converted, printed]
    assert result.document == printed
    await runtime.delete(THREE, ATTACHMENT, result)
    expected = [None, converted, converted, converted, converted, converted]
    assert [command.stdin.get("prevResult") for command in plugins.commands] == expected


async def test_add_needs_a_namespace(plugins: FakePlugins, runtime: Runtime) -> None:
    """ADD and CHECK without a netns are errors; DEL runs."""
    nowhere = replace(ATTACHMENT, netns="")
    for operation in (runtime.add(THREE, nowhere), runtime.check(THREE, nowhere, None)):
        with pytest.raises(InvalidParameter) as caught:
            await operation
        assert caught.value.code == 4
    assert plugins.calls == ()
    await runtime.delete(THREE, nowhere, None)
    assert len(plugins.calls) == 3
