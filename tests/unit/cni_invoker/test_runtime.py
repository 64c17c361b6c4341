# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""ADD and DEL over whole lists of plugins."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    AttachmentKey,
    BadResult,
    GcFailed,
    InvalidParameter,
    Limits,
    NetworkConfigurationList,
    PluginFailed,
    PluginNotFound,
    PluginTimeout,
    Result,
    Runtime,
    VerbUnsupported,
    VersionUnsupported,
)
from spec import JsonObject, JsonValue
from tests.plugins import FakePlugins

ATTACHMENT = Attachment(
    container_id="some-container-id",
    ifname="eth0",
    netns="/run/netns/c1",
    args=(("FOO", "BAR"),),
    capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
)
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}], "unknown": 1}
LIMITS = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, retry_pauses_s=(0.01, 0.02), executions=4)


def network(*plugins: JsonValue, version: str = "1.1.0") -> NetworkConfigurationList:
    """Make a list."""
    return NetworkConfigurationList.from_document(
        {"name": "some-list", "cniVersion": version, "plugins": list(plugins)}
    )


THREE = network(
    {"type": "first", "some-key": "some-value", "capabilities": {"portMappings": True}},
    {"type": "second", "prevResult": "from the file"},
    {"type": "third"},
)


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Three fake plugins: one with a result, one that passes it on, one that adds DNS."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("first", ADD={"result": RESULT})
    plugins.install("second", ADD={"passthrough": True})
    plugins.install("third", ADD={"inject_dns": {"nameservers": ["1.2.3.4"]}})
    return plugins


@pytest.fixture(name="runtime")
def make_runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds them."""
    return Runtime([plugins.directory], LIMITS)


async def test_add_runs_the_plugins_in_their_order(plugins: FakePlugins, runtime: Runtime) -> None:
    """Each plugin is told the result of the one before; that of the last is the result of all."""
    result = await runtime.add(THREE, ATTACHMENT)
    assert result.document == {**RESULT, "dns": {"nameservers": ["1.2.3.4"]}}
    assert plugins.calls == (("first", "ADD"), ("second", "ADD"), ("third", "ADD"))
    assert [command.stdin.get("prevResult") for command in plugins.commands] == [None, RESULT, RESULT]
    first = plugins.commands[0].stdin
    assert first == {
        "type": "first",
        "some-key": "some-value",
        "name": "some-list",
        "cniVersion": "1.1.0",
        "runtimeConfig": ATTACHMENT.capability_args,
    }
    for command in plugins.commands:
        assert command.environment == {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": "some-container-id",
            "CNI_NETNS": "/run/netns/c1",
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": "FOO=BAR",
            "CNI_PATH": str(plugins.directory),
        }


async def test_add_stops_at_the_first_failure(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin's error ends ADD; those after it are not run, and nothing is undone."""
    plugins.install("second", ADD={"error": {"code": 999, "msg": "plugin error: banana"}})
    with pytest.raises(PluginFailed, match=r'^plugin type="second" failed \(add\): plugin error: banana'):
        await runtime.add(THREE, ATTACHMENT)
    assert plugins.calls == (("first", "ADD"), ("second", "ADD"))


async def test_each_result_is_told_before_the_next_plugin_runs(plugins: FakePlugins, runtime: Runtime) -> None:
    """Whoever stores results has that of each plugin in time; if that cannot be done, no further plugin runs."""
    plugins.install("third", ADD={"error": {"code": 999, "msg": "banana"}})
    told: list[tuple[Result, int]] = []

    async def remember(result: Result) -> None:
        told.append((result, len(plugins.calls)))

    with pytest.raises(PluginFailed):
        await runtime.add(THREE, ATTACHMENT, on_result=remember)
    assert told == [(Result.from_document(RESULT), 1), (Result.from_document(RESULT), 2)]

    async def refuse(_: Result) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await runtime.add(THREE, ATTACHMENT, on_result=refuse)
    assert plugins.calls[3:] == (("first", "ADD"),)


async def test_add_without_a_result(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin that ends well but prints no result is named, with its standard error."""
    plugins.install("second", ADD={"stdout": "", "stderr": "out of words\n"})
    with pytest.raises(BadResult) as caught:
        await runtime.add(THREE, ATTACHMENT)
    assert str(caught.value) == (
        'plugin type="second" failed (add): bad CNI result: plugin returned no result; '
        "its last words on standard error: out of words"
    )


async def test_add_with_a_missing_plugin_runs_nothing(plugins: FakePlugins, runtime: Runtime) -> None:
    """All plugins must be there before the first one runs."""
    (plugins.directory / "third").unlink()
    with pytest.raises(PluginNotFound, match="third"):
        await runtime.add(THREE, ATTACHMENT)
    assert plugins.calls == ()


async def test_add_in_a_version_nobody_speaks_runs_nothing(plugins: FakePlugins, runtime: Runtime) -> None:
    """A list of the future is refused before anything is done."""
    with pytest.raises(VersionUnsupported, match=r"1\.2\.3"):
        await runtime.add(network({"type": "first"}, version="1.2.3"), ATTACHMENT)
    assert plugins.calls == ()


async def test_a_result_of_before_0_3_0(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin of the first specification is understood, and deleted without a result."""
    plugins.install("old", ADD={"result": {"ip4": {"ip": "10.1.2.3/24"}}})
    old = network({"type": "old"}, version="")
    result = await runtime.add(old, ATTACHMENT)
    assert (result.cni_version, str(result.ips[0].address)) == ("0.1.0", "10.1.2.3/24")
    await runtime.delete(old, ATTACHMENT, result)
    assert "prevResult" not in plugins.commands[-1].stdin


async def test_delete_runs_the_plugins_in_reverse(plugins: FakePlugins, runtime: Runtime) -> None:
    """Every plugin is told the final result, and given what it was given for ADD."""
    await runtime.delete(THREE, ATTACHMENT, Result.from_document(RESULT))
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("first", "DEL"))
    assert [command.stdin["prevResult"] for command in plugins.commands] == [RESULT] * 3
    assert plugins.commands[-1].stdin["runtimeConfig"] == ATTACHMENT.capability_args
    assert plugins.commands[-1].environment["CNI_ARGS"] == "FOO=BAR"


@pytest.mark.parametrize(("version", "told"), [("0.3.1", False), ("0.4.0", True), ("1.0.0", True)])
async def test_delete_tells_the_result_from_0_4_0(
    plugins: FakePlugins, runtime: Runtime, version: str, told: bool
) -> None:
    """Plugins of before 0.4.0 do not expect a result with DEL."""
    result = Result.from_document({**RESULT, "cniVersion": version})
    await runtime.delete(network({"type": "first"}, version=version), ATTACHMENT, result)
    assert ("prevResult" in plugins.commands[0].stdin) is told


async def test_delete_without_a_result(plugins: FakePlugins, runtime: Runtime) -> None:
    """After an ADD that failed there is no result to tell; all plugins run all the same."""
    await runtime.delete(THREE, ATTACHMENT, None)
    assert len(plugins.calls) == 3
    assert all("prevResult" not in command.stdin for command in plugins.commands)


async def test_delete_works_from_what_was_stored(plugins: FakePlugins, runtime: Runtime) -> None:
    """The documents of list and result are all that must be kept for DEL."""
    result = await runtime.add(THREE, ATTACHMENT)
    stored = NetworkConfigurationList.from_document(THREE.document)
    await runtime.delete(stored, ATTACHMENT, Result.from_document(result.document))
    assert plugins.calls[3:] == (("third", "DEL"), ("second", "DEL"), ("first", "DEL"))


async def test_delete_retries_a_failing_plugin_once(plugins: FakePlugins, runtime: Runtime) -> None:
    """Some plugins fail at what is missing already, and succeed when asked again."""
    plugins.install("second", DEL=[{"error": {"code": 999, "msg": "Chain does not exist"}}, {}])
    await runtime.delete(THREE, ATTACHMENT, None)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("second", "DEL"), ("first", "DEL"))


async def test_delete_stops_at_a_plugin_that_fails_twice(plugins: FakePlugins, runtime: Runtime) -> None:
    """The plugins before it keep what they gave: an address must not be free while rules for it remain."""
    plugins.install("second", DEL={"error": {"code": 999, "msg": "plugin error: banana"}})
    with pytest.raises(PluginFailed, match=r'^plugin type="second" failed \(delete\): plugin error: banana'):
        await runtime.delete(THREE, ATTACHMENT, None)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("second", "DEL"))


REFUSED: JsonObject = {"error": {"code": 1, "msg": "incompatible CNI versions"}}


@pytest.mark.parametrize("refusing", ["second", "third"])
async def test_a_plugin_whose_add_never_ended_may_refuse_its_delete(
    plugins: FakePlugins, runtime: Runtime, refusing: str
) -> None:
    """What it never did it cannot keep the others from undoing, be it the one that failed or one behind it."""
    plugins.install(refusing, DEL=REFUSED)
    await runtime.delete(THREE, ATTACHMENT, None, answered=1)
    assert plugins.calls[-1] == ("first", "DEL")


async def test_a_plugin_that_has_answered_may_not(plugins: FakePlugins, runtime: Runtime) -> None:
    """It must undo what it did before the others do."""
    plugins.install("first", DEL=REFUSED)
    with pytest.raises(PluginFailed, match="incompatible"):
        await runtime.delete(THREE, ATTACHMENT, None, answered=1)


async def test_a_plugin_that_is_not_ready_is_owed_its_delete(plugins: FakePlugins, runtime: Runtime) -> None:
    """It may have begun something: the others are undone, and its error is raised then."""
    plugins.install("second", DEL={"error": {"code": 11, "msg": "try again later"}})
    with pytest.raises(PluginFailed, match="try again later"):
        await runtime.delete(THREE, ATTACHMENT, None, answered=1)
    assert plugins.calls[-1] == ("first", "DEL")


async def test_delete_does_not_read_what_plugins_print(plugins: FakePlugins, runtime: Runtime) -> None:
    """DEL has no result: garbage on the standard output of a plugin that ends well is nothing."""
    plugins.install("first", DEL={"stdout": "garbage"})
    await runtime.delete(network({"type": "first"}), ATTACHMENT, None)


async def test_delete_has_all_its_time_after_an_add_that_used_up_its(plugins: FakePlugins) -> None:
    """A plugin that hung in ADD is deleted under a limit of its own."""
    plugins.install("slow", ADD={"sleep_s": 60}, DEL={"sleep_s": 1.2})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=1.0, delete_s=10.0))
    slow = network({"type": "slow"})
    with pytest.raises(PluginTimeout, match="within 1 s"):
        await runtime.add(slow, ATTACHMENT)
    await runtime.delete(slow, ATTACHMENT, None)
    assert plugins.calls == (("slow", "ADD"), ("slow", "DEL"))


async def test_delete_does_not_retry_a_plugin_that_hangs(plugins: FakePlugins) -> None:
    """Waiting once for nothing is enough."""
    plugins.install("slow", DEL={"sleep_s": 60})
    with pytest.raises(PluginTimeout):
        await Runtime([plugins.directory], replace(LIMITS, delete_s=1.0)).delete(
            network({"type": "slow"}), ATTACHMENT, None
        )
    assert plugins.calls == (("slow", "DEL"),)


async def test_a_chain_of_versions(plugins: FakePlugins, runtime: Runtime) -> None:
    """A result goes on, and to DEL, in the version of the list; it is returned and told as it was printed."""
    printed: JsonObject = {"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}
    told: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
    plugins.install("first", ADD={"result": printed})
    plugins.install("third", ADD={"result": printed})
    seen: list[JsonObject] = []

    async def remember(result: Result) -> None:
        seen.append(result.document)

    result = await runtime.add(THREE, ATTACHMENT, on_result=remember)
    assert seen == [printed, told, printed]
    assert result.document == printed
    await runtime.delete(THREE, ATTACHMENT, result)
    assert [command.stdin.get("prevResult") for command in plugins.commands] == [None, told, told, told, told, told]


async def test_delete_does_not_need_a_result_that_cannot_be_told(plugins: FakePlugins, runtime: Runtime) -> None:
    """A result that the list's version cannot say is left out: what is not deleted is worse."""
    await runtime.delete(network({"type": "first"}, version="1.2.3"), ATTACHMENT, Result.from_document(RESULT))
    assert "prevResult" not in plugins.commands[0].stdin


async def test_add_needs_a_namespace(plugins: FakePlugins, runtime: Runtime) -> None:
    """Only DEL may come without one."""
    nowhere = replace(ATTACHMENT, netns="")
    for operation in (runtime.add(THREE, nowhere), runtime.check(THREE, nowhere, None)):
        with pytest.raises(InvalidParameter) as caught:
            await operation
        assert caught.value.code == 4
    assert plugins.calls == ()
    await runtime.delete(THREE, nowhere, None)
    assert len(plugins.calls) == 3


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


KEY = AttachmentKey(container_id="some-container-id", ifname="eth0")


def without_version(plugins: FakePlugins) -> tuple[tuple[str, str], ...]:
    """Return every call but those for VERSION."""
    return tuple(call for call in plugins.calls if call[1] != "VERSION")


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


async def test_one_operation_at_a_time_on_a_container(plugins: FakePlugins, runtime: Runtime) -> None:
    """A DEL waits for the ADD of the same container, on any network, and for no other."""
    plugins.install("slow", ADD={"sleep_s": 0.3})
    slow = network({"type": "slow"})
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(slow, ATTACHMENT))
        await asyncio.sleep(0.1)
        tasks.create_task(runtime.delete(THREE, ATTACHMENT, None))
        await runtime.delete(slow, replace(ATTACHMENT, container_id="other"), None)
    assert next(call for call in plugins.calls if call[1] == "DEL") == ("slow", "DEL")
    assert plugins.calls[-1] == ("first", "DEL")


async def test_status(plugins: FakePlugins, runtime: Runtime) -> None:
    """The first plugin that cannot take containers tells why; who does not know STATUS is not asked."""
    plugins.install("first", VERSION={"supportedVersions": ["1.0.0"]})
    await runtime.status(network({"type": "first"}, version="1.0.0"))
    assert not plugins.calls
    await runtime.status(THREE)
    assert without_version(plugins) == (("second", "STATUS"), ("third", "STATUS"))
    plugins.install("second", STATUS={"error": {"code": 50, "msg": "no addresses left"}})
    with pytest.raises(PluginFailed, match="no addresses left") as caught:
        await runtime.status(THREE)
    assert caught.value.code == 50
    assert plugins.calls[-1] == ("second", "STATUS")


def test_find_plugins(plugins: FakePlugins, runtime: Runtime) -> None:
    """All executables are found, those for IPAM included, without running one."""
    ipam = plugins.install("host-local")
    wanted = network({"type": "first", "ipam": {"type": "host-local"}}, {"type": "second"})
    assert runtime.find_plugins(wanted) == (plugins.directory / "first", ipam, plugins.directory / "second")
    assert plugins.calls == ()
    ipam.unlink()
    with pytest.raises(PluginNotFound, match='"host-local"'):
        runtime.find_plugins(wanted)
    with pytest.raises(VersionUnsupported):
        runtime.find_plugins(replace(wanted, cni_version="1.2.3"))


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
