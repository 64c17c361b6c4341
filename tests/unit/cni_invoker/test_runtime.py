# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""CHECK, GC and STATUS over whole lists, and what the runtime finds without running a plugin."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import PluginFailed, Result, Runtime
from cni_invoker.errors import GcFailed, InvalidParameter, NoCommonVersion, PluginNotFound, PluginTimeout
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
        with (
            nullcontext() if verb == "GC" or one is offered[1] else pytest.raises(NoCommonVersion, match="old supports")
        ):
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
    with pytest.raises(NoCommonVersion, match=r"offers 1\.1\.0; plugin second supports 1\.0\.0") as caught:
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
        await Runtime([plugins.directory], replace(LIMITS, version_s=0.3, status_s=0.3)).status(THREE)
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
