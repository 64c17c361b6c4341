# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DEL over whole lists of plugins."""

from dataclasses import replace
from typing import Final

import pytest

from cni_invoker import (
    NetworkConfigurationList,
    PluginFailed,
    PluginNotFound,
    PluginNotStarted,
    PluginTimeout,
    Result,
    Runtime,
)
from spec import JsonObject
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, FAILED, LIMITS, REFUSED, RESULT, THREE, network


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


@pytest.mark.parametrize("code", [1, 2, 7])
async def test_a_plugin_that_rejects_the_request_has_made_nothing(
    plugins: FakePlugins, runtime: Runtime, code: int
) -> None:
    """Its ADD was given the same version and configuration: a wrong one must not leave something to delete for ever."""
    plugins.install("second", DEL={"error": {"code": code, "msg": "rejected"}})
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls[-1] == ("first", "DEL")


@pytest.mark.parametrize("added_plugins", [0, 1, None])
async def test_a_plugin_that_does_not_know_the_container_is_done(
    plugins: FakePlugins, runtime: Runtime, added_plugins: int | None
) -> None:
    """Code 3 says that there is nothing to clean up; the plugin is not asked once more."""
    plugins.install("second", DEL={"error": {"code": 3, "msg": "unknown container"}})
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=added_plugins)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("first", "DEL"))


@pytest.mark.parametrize("code", [1, 2, 7, 999])
async def test_a_plugin_whose_add_has_completed_must_delete(plugins: FakePlugins, runtime: Runtime, code: int) -> None:
    """It must undo what it did before the plugins before it do."""
    plugins.install("second", DEL={"error": {"code": code, "msg": "no"}})
    with pytest.raises(PluginFailed, match="no"):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=2)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("second", "DEL"))


FAILURES: Final[dict[str, JsonObject]] = {
    "an error without a meaning": {"error": {"code": 999, "msg": "xtables lock is held"}},
    "not ready": {"error": {"code": 11, "msg": "try again later"}},
    "an I/O error": {"error": {"code": 5, "msg": "cannot write"}},
    "a code of its own": {"error": {"code": 100, "msg": "private"}},
    "killed after an answer": {"error": {"code": 7, "msg": "invalid"}, "signal": 9},
    "killed": {"signal": 9},
}


@pytest.mark.parametrize("behaviour", FAILURES.values(), ids=FAILURES.keys())
async def test_the_failure_of_a_plugin_whose_add_has_not_completed_is_raised(
    plugins: FakePlugins, runtime: Runtime, behaviour: JsonObject
) -> None:
    """Nobody knows what it has made. The others are undone, and then its error is raised, so that nobody forgets it."""
    plugins.install("second", DEL=behaviour)
    with pytest.raises(PluginFailed):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls[-1] == ("first", "DEL")


async def test_a_plugin_that_is_missing_for_a_moment_is_asked_later(plugins: FakePlugins, runtime: Runtime) -> None:
    """Its file may be replaced just now."""
    (plugins.directory / "second").unlink()
    with pytest.raises(PluginNotFound):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls == (("third", "DEL"), ("first", "DEL"))


async def test_a_plugin_that_cannot_be_started_is_asked_later(plugins: FakePlugins, runtime: Runtime) -> None:
    """The kernel may have no more descriptors or processes for us just now."""
    (plugins.directory / "second").write_bytes(b"\x7fELF but no more")
    with pytest.raises(PluginNotStarted):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls == (("third", "DEL"), ("first", "DEL"))


@pytest.mark.parametrize("failure", [REFUSED, FAILED])
async def test_a_plugin_that_was_never_started_may_fail(
    plugins: FakePlugins, runtime: Runtime, failure: JsonObject
) -> None:
    """It has made nothing: the result of the plugin before it is stored before it begins."""
    plugins.install("third", DEL=failure)
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls[-2:] == (("second", "DEL"), ("first", "DEL"))


async def test_a_forced_delete_runs_all_plugins(
    plugins: FakePlugins, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever fails: what it says is logged."""
    plugins.install("third", DEL=FAILED)
    (plugins.directory / "second").unlink()
    deleted: list[frozenset[int]] = []

    async def store(indexes: frozenset[int]) -> None:
        deleted.append(indexes)

    await runtime.delete(THREE, ATTACHMENT, None, force=True, on_deleted=store)
    assert plugins.calls == (("third", "DEL"), ("third", "DEL"), ("first", "DEL"))
    assert deleted == [{0}]
    said = [record.__dict__["error"] for record in caplog.records if record.msg == "plugin.delete_failed"]
    assert "xtables lock" in said[0]
    assert 'failed to find plugin "second"' in said[1]


async def test_delete_does_not_read_what_plugins_print(plugins: FakePlugins, runtime: Runtime) -> None:
    """DEL has no result: garbage on the standard output of a plugin that ends well is nothing."""
    plugins.install("first", DEL={"stdout": "garbage"})
    await runtime.delete(network({"type": "first"}), ATTACHMENT, None)


async def test_delete_has_all_its_time_after_an_add_that_used_up_its(plugins: FakePlugins) -> None:
    """A plugin that hung in ADD is deleted under a limit of its own."""
    plugins.install("slow", ADD={"sleep_s": 60}, DEL={"sleep_s": 1.2})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=1.0, delete_s=10.0))
    slow = network({"type": "slow"})
    with pytest.raises(PluginTimeout, match="after 1 s"):
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


async def test_delete_does_not_need_a_result_that_cannot_be_told(plugins: FakePlugins, runtime: Runtime) -> None:
    """A result that the list's version cannot say is left out: what is not deleted is worse."""
    await runtime.delete(network({"type": "first"}, version="1.2.3"), ATTACHMENT, Result.from_document(RESULT))
    assert "prevResult" not in plugins.commands[0].stdin
