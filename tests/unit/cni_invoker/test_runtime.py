# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""CHECK, GC and STATUS over whole lists of plugins, and what is known without running any."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    BadResult,
    GcFailed,
    InvalidParameter,
    NoCommonVersion,
    PluginFailed,
    PluginNotFound,
    Result,
    Runtime,
    VerbUnsupported,
    VersionUnsupported,
)
from spec import JsonValue
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import (
    ATTACHMENT,
    KEY,
    LIMITS,
    RESULT,
    THREE,
    network,
    without_version,
)


async def test_check_runs_the_plugins_in_their_order(plugins: FakePlugins, runtime: Runtime) -> None:
    """Every plugin is told the result of the whole ADD, and given what ADD gave."""
    result = Result.from_document({**RESULT, "cniVersion": "1.0.0"})
    await runtime.check(THREE, ATTACHMENT, result)
    assert plugins.calls == (("first", "CHECK"), ("second", "CHECK"), ("third", "CHECK"))
    assert [command.stdin["prevResult"] for command in plugins.commands] == [RESULT] * 3
    assert plugins.commands[0].stdin["runtimeConfig"] == ATTACHMENT.capability_args
    assert plugins.commands[0].environment["CNI_ARGS"] == "FOO=BAR"
    await runtime.check(THREE, ATTACHMENT, None)
    assert "prevResult" not in plugins.commands[-1].stdin


async def test_check_stops_at_the_first_finding(plugins: FakePlugins, runtime: Runtime) -> None:
    """What a plugin finds is raised in its own words."""
    plugins.install("second", CHECK={"error": {"code": 100, "msg": "the route is gone"}})
    with pytest.raises(PluginFailed, match=r'^plugin type="second" failed \(check\): the route is gone'):
        await runtime.check(THREE, ATTACHMENT, None)
    assert len(plugins.calls) == 2


async def test_check_that_a_list_does_not_have(plugins: FakePlugins, runtime: Runtime) -> None:
    """Before 0.4.0 there is no CHECK, whatever the list says of it; a list that forbids it is taken to be well."""
    for forbidden in (False, True):
        old = replace(network({"type": "first"}, version="0.3.1"), disable_check=forbidden)
        with pytest.raises(
            VerbUnsupported, match=r'^configuration version "0\.3\.1" does not support the CHECK command'
        ):
            await runtime.check(old, ATTACHMENT, None)
    await runtime.check(replace(THREE, disable_check=True), ATTACHMENT, None)
    assert plugins.calls == ()


async def test_check_needs_a_result_that_can_be_told(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin would find fault with what it cannot read."""
    future = network({"type": "first"}, version="1.2.3")
    with pytest.raises(BadResult, match="unsupported CNI result version"):
        await runtime.check(future, ATTACHMENT, Result.from_document(RESULT))
    assert plugins.calls == ()


async def test_gc_runs_every_plugin(plugins: FakePlugins, runtime: Runtime) -> None:
    """All plugins are told what is valid; one that fails does not keep the others from it."""
    assert ATTACHMENT.key == KEY
    plugins.install("first", GC={"error": {"code": 999, "msg": "banana"}})
    plugins.install("second", GC={"error": {"code": 999, "msg": "apple"}})
    with pytest.raises(GcFailed, match=r"some-list: .*banana.*; .*apple") as caught:
        await runtime.gc(THREE, [KEY])
    assert [type(error) for error in caught.value.errors] == [PluginFailed, PluginFailed]
    assert without_version(plugins) == (("first", "GC"), ("second", "GC"), ("third", "GC"))
    valid: JsonValue = [{"containerID": "some-container-id", "ifname": "eth0"}]
    assert plugins.commands[-1].stdin["cni.dev/valid-attachments"] == valid


async def test_gc_is_only_for_those_who_know_it(plugins: FakePlugins, runtime: Runtime) -> None:
    """Lists before 1.1.0, those that forbid it, and plugins that do not speak 1.1.0 are left alone."""
    await runtime.gc(network({"type": "first"}, version="1.0.0"), [])
    await runtime.gc(replace(THREE, disable_gc=True), [])
    assert plugins.calls == ()
    plugins.install("second", VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    await runtime.gc(THREE, [])
    assert without_version(plugins) == (("first", "GC"), ("third", "GC"))


@pytest.mark.parametrize("verb", ["GC", "STATUS"])
async def test_the_plugin_for_ipam_must_know_it_too(plugins: FakePlugins, runtime: Runtime, verb: str) -> None:
    """A plugin hands GC and STATUS on to the one for IPAM, whose complaint that it does not know them says nothing."""
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
async def test_an_ipam_type_without_executable(plugins: FakePlugins, runtime: Runtime, verb: str) -> None:
    """The plugin that names it is asked all the same: it knows what the name stands for."""
    one = network({"type": "first", "ipam": {"type": "azure-cns"}})
    await (runtime.gc(one, []) if verb == "GC" else runtime.status(one))
    await runtime.add(one, ATTACHMENT)
    assert without_version(plugins) == (("first", verb), ("first", "ADD"))


async def test_gc_needs_to_be_told_what_is_valid(plugins: FakePlugins, runtime: Runtime) -> None:
    """Nothing is taken for "everything is stale"."""
    with pytest.raises(TypeError):
        await runtime.gc(THREE)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        await runtime.gc(THREE, None)  # type: ignore[arg-type]
    assert plugins.calls == ()


async def test_nothing_is_added_while_garbage_is_collected(plugins: FakePlugins, runtime: Runtime) -> None:
    """What is valid can be found out in peace."""
    async with asyncio.TaskGroup() as tasks:
        async with runtime.collecting(THREE) as collecting:
            adding = tasks.create_task(runtime.add(THREE, ATTACHMENT))
            await asyncio.sleep(0.1)
            assert not plugins.calls
            await collecting.gc([])
            assert without_version(plugins) == (("first", "GC"), ("second", "GC"), ("third", "GC"))
        await adding
    assert plugins.calls[-1] == ("third", "ADD")


async def test_one_operation_at_a_time_on_a_container(plugins: FakePlugins, runtime: Runtime, tmp_path: Path) -> None:
    """A DEL waits for the ADD of the same container, on any network, and for no other."""
    gate = tmp_path / "gate"
    plugins.install("slow", ADD={"wait_for": str(gate)})
    slow = network({"type": "slow"})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(slow, ATTACHMENT))
        while ("slow", "ADD") not in plugins.calls:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)
        tasks.create_task(runtime.delete(THREE, ATTACHMENT, None))
        await runtime.delete(slow, replace(ATTACHMENT, container_id="other"), None)
        gate.touch()
    assert next(call for call in plugins.calls if call[1] == "DEL") == ("slow", "DEL")
    assert plugins.calls[-1] == ("first", "DEL")


async def test_status(plugins: FakePlugins, runtime: Runtime) -> None:
    """The first plugin that cannot take containers tells why; before 1.1.0 there is nothing to ask."""
    await runtime.status(network({"type": "first"}, version="1.0.0"))
    assert not plugins.calls
    await runtime.status(THREE)
    assert without_version(plugins) == (("first", "STATUS"), ("second", "STATUS"), ("third", "STATUS"))
    plugins.install("second", STATUS={"error": {"code": 50, "msg": "no addresses left"}})
    with pytest.raises(PluginFailed, match="no addresses left") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 50
    assert plugins.calls[-1] == ("second", "STATUS")


async def test_status_of_what_add_would_refuse(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin that does not speak the list's version would refuse ADD, which a missing one cannot do."""
    plugins.install("second", VERSION={"supportedVersions": ["1.0.0"]})
    with pytest.raises(NoCommonVersion, match=r"offers 1\.1\.0; plugin second supports 1\.0\.0") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 1
    assert without_version(plugins) == (("first", "STATUS"),)
    with pytest.raises(PluginNotFound, match='"gone"'):
        await runtime.status(network({"type": "gone"}, version="1.0.0"))


async def test_status_of_a_plugin_that_does_not_tell(plugins: FakePlugins, runtime: Runtime) -> None:
    """Nobody knows whether it knows STATUS, so it is not asked; ADD would run."""
    plugins.install("first", VERSION={"error": {"code": 4, "msg": "banana"}})
    await runtime.status(THREE)
    assert without_version(plugins) == (("second", "STATUS"), ("third", "STATUS"))


def test_find_plugins(plugins: FakePlugins, runtime: Runtime) -> None:
    """All executables are found, those for IPAM included if there are any, without running one."""
    ipam = plugins.install("host-local")
    wanted = network({"type": "first", "ipam": {"type": "host-local"}}, {"type": "second"})
    assert runtime.find_plugins(wanted) == (plugins.directory / "first", ipam, plugins.directory / "second")
    assert plugins.calls == ()
    ipam.unlink()
    assert runtime.find_plugins(wanted) == (plugins.directory / "first", plugins.directory / "second")
    (plugins.directory / "second").unlink()
    with pytest.raises(PluginNotFound, match='"second"'):
        runtime.find_plugins(wanted)
    with pytest.raises(VersionUnsupported):
        runtime.find_plugins(replace(wanted, cni_version="1.2.3"))


async def test_a_relative_plugin_directory(plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin in it is run, by us and by one that delegates to it, never a program of that name in PATH."""
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
        ("/opt/cni\0/bin", "it is no path"),
        ("/opt/cni/\ud800", "it is no path"),
        ("/opt/cni:1/bin", "which is what separates directories in CNI_PATH; give it another name"),
    ],
)
def test_a_plugin_directory_is_a_path(directory: str, reason: str) -> None:
    """What nobody could look for a plugin in, we or another plugin, is refused at once, not at the first search."""
    with pytest.raises(InvalidParameter, match=f"invalid plugin directory .*{reason}") as caught:
        Runtime([Path("/opt/cni/bin"), Path(directory)], LIMITS)
    assert caught.value.code == 4
