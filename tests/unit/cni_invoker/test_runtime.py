# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""ADD, CHECK, GC and STATUS over whole lists, and what the runtime finds without running a plugin."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import PluginFailed, Result, Runtime
from cni_invoker.errors import GcFailed, InvalidParameter, PluginNotFound, PluginTimeout, VersionUnsupported
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, KEY, LIMITS, RESULT, THREE, network, without_version


async def test_check_runs_the_plugins_in_order(plugins: FakePlugins, runtime: Runtime) -> None:
    """Every plugin receives the final result of ADD, and the arguments of the attachment."""
    result = Result.from_document({**RESULT, "cniVersion": "1.0.0"})
    await runtime.check(THREE, ATTACHMENT, result)
    assert plugins.calls == (("first", "CHECK"), ("second", "CHECK"), ("third", "CHECK"))
    assert [command.stdin["prevResult"] for command in plugins.commands] == [RESULT] * 3
    assert plugins.commands[0].stdin["runtimeConfig"] == ATTACHMENT.capability_args
    assert plugins.commands[0].environment["CNI_ARGS"] == "FOO=BAR"
    await runtime.check(THREE, ATTACHMENT, None)
    assert "prevResult" not in plugins.commands[-1].stdin


async def test_gc_runs_every_plugin(plugins: FakePlugins, runtime: Runtime) -> None:
    """All plugins receive the valid attachments; a failure does not stop the others, and all errors are raised."""
    assert ATTACHMENT.key == KEY
    plugins.install("first", GC={"error": {"code": 999, "msg": "banana"}})
    plugins.install("second", GC={"error": {"code": 999, "msg": "apple"}})
    with pytest.raises(GcFailed, match=r"some-list: .*banana.*; .*apple") as caught:
        await runtime.gc(THREE, [KEY])
    assert [type(error) for error in caught.value.errors] == [PluginFailed, PluginFailed]
    assert without_version(plugins) == (("first", "GC"), ("second", "GC"), ("third", "GC"))
    valid: JsonValue = [{"containerID": "some-container-id", "ifname": "eth0"}]
    assert plugins.commands[-1].stdin["cni.dev/valid-attachments"] == valid


async def test_gc_skips_what_does_not_support_it(plugins: FakePlugins, runtime: Runtime) -> None:
    """Lists before 1.1.0, lists with disableGC, and plugins that do not support 1.1.0 are skipped."""
    await runtime.gc(network({"type": "first"}, version="1.0.0"), [])
    await runtime.gc(replace(THREE, disable_gc=True), [])
    assert plugins.calls == ()
    plugins.install("second", VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    await runtime.gc(THREE, [])
    assert without_version(plugins) == (("first", "GC"), ("third", "GC"))


@pytest.mark.parametrize("verb", ["GC", "STATUS"])
async def test_gc_and_status_need_an_ipam_plugin_that_supports_them(
    plugins: FakePlugins, runtime: Runtime, verb: str
) -> None:
    """A plugin passes GC and STATUS on to its IPAM plugin, whose "unknown command" would not mean anything."""
    plugins.install("old", VERSION={"supportedVersions": ["1.0.0"]})
    plugins.install("new")
    offered = [network({"type": "first", "ipam": {"type": ipam}}, {"type": "second"}) for ipam in ("old", "new")]
    for one in offered:
        is_run = verb == "GC" or one is offered[1]
        with nullcontext() if is_run else pytest.raises(VersionUnsupported, match="old supports"):
            await (runtime.gc(one, []) if verb == "GC" else runtime.status(one))
    once = (("second", "GC"),) if verb == "GC" else ()
    assert without_version(plugins) == (*once, ("first", verb), ("second", verb))


@pytest.mark.parametrize("verb", ["GC", "STATUS"])
async def test_gc_and_status_ignore_an_ipam_type_without_executable(
    plugins: FakePlugins, runtime: Runtime, verb: str
) -> None:
    """The plugin that names the type runs: it may implement the type itself."""
    one = network({"type": "first", "ipam": {"type": "azure-cns"}})
    await (runtime.gc(one, []) if verb == "GC" else runtime.status(one))
    await runtime.add(one, ATTACHMENT)
    assert without_version(plugins) == (("first", verb), ("first", "ADD"))


async def test_status_stops_at_the_first_error(plugins: FakePlugins, runtime: Runtime) -> None:
    """The first plugin that is not ready raises its error; before 1.1.0 no plugin runs."""
    await runtime.status(network({"type": "first"}, version="1.0.0"))
    assert not plugins.calls
    await runtime.status(THREE)
    assert without_version(plugins) == (("first", "STATUS"), ("second", "STATUS"), ("third", "STATUS"))
    plugins.install("second", STATUS={"error": {"code": 50, "msg": "no addresses left"}})
    with pytest.raises(PluginFailed, match="no addresses left") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 50
    assert plugins.calls[-1] == ("second", "STATUS")


async def test_status_fails_where_add_would(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin that does not support the list's version, or is missing, is an error."""
    plugins.install("second", VERSION={"supportedVersions": ["1.0.0"]})
    with pytest.raises(VersionUnsupported, match=r"offers 1\.1\.0; plugin second supports 1\.0\.0") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 1
    assert without_version(plugins) == (("first", "STATUS"),)
    with pytest.raises(PluginNotFound, match='"gone"'):
        await runtime.status(network({"type": "gone"}, version="1.0.0"))


async def test_status_asks_a_plugin_that_fails_version(plugins: FakePlugins, runtime: Runtime) -> None:
    """ADD would run it, so it is asked all the same."""
    plugins.install("first", VERSION={"error": {"code": 4, "msg": "banana"}})
    await runtime.status(THREE)
    assert without_version(plugins) == (("first", "STATUS"), ("second", "STATUS"), ("third", "STATUS"))


async def test_status_of_a_plugin_that_cannot_run(plugins: FakePlugins, runtime: Runtime) -> None:
    """It is never ready: it ends at once, hangs, or has no such verb, whose code 3 is its error and nothing else."""
    broken: dict[str, JsonValue] = {"exit": 127}
    plugins.install("first", VERSION=broken, STATUS=broken)
    with pytest.raises(PluginFailed, match="exit status 127"):
        await runtime.status(THREE)
    plugins.install("first", VERSION={"sleep_s": 30}, STATUS={"sleep_s": 30})
    with pytest.raises(PluginTimeout):
        await Runtime([plugins.directory], replace(LIMITS, version_s=0.3)).status(THREE)
    old: JsonValue = {"error": {"code": 3, "msg": "missing containerID"}}
    plugins.install("first", VERSION=old, STATUS=old)
    with pytest.raises(PluginFailed, match="missing containerID") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 3
    assert ("second", "STATUS") not in plugins.calls


async def test_a_relative_plugin_directory_is_made_absolute(
    plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin in it is run, by the runtime and by a delegating plugin, never a program of that name in PATH."""
    plugins.install("true", ADD={"delegate": True})
    plugins.install("false")
    monkeypatch.chdir(plugins.directory)
    runtime = Runtime([Path()], LIMITS)
    assert runtime.find_plugin("true") == plugins.directory / "true"
    await runtime.add(network({"type": "true", "ipam": {"type": "false"}}), ATTACHMENT)
    assert plugins.calls == (("true", "ADD"), ("false", "ADD"))
    assert {command.environment["CNI_PATH"] for command in plugins.commands} == {str(plugins.directory)}


@pytest.mark.parametrize(
    ("directory", "reason"),
    [
        ("/opt/cni\0/bin", "it is not a path"),
        ("/opt/cni/\ud800", "it is not a path"),
        ("/opt/cni:1/bin", "which is what separates directories in CNI_PATH; give it another name"),
    ],
)
def test_an_invalid_plugin_directory_is_rejected(directory: str, reason: str) -> None:
    """A directory that cannot be searched, here or by a plugin through CNI_PATH, is an error of the constructor."""
    with pytest.raises(InvalidParameter, match=f"invalid plugin directory .*{reason}") as caught:
        Runtime([Path("/opt/cni/bin"), Path(directory)], LIMITS)
    assert caught.value.code == 4


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
