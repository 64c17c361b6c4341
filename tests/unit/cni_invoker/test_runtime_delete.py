# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DEL over whole lists of plugins, which resumes where it stopped."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Attachment, Limits, PluginFailed, Result, Runtime
from cni_invoker.advanced import DeleteHooks
from cni_invoker.errors import PluginNotFound, PluginNotStarted, PluginTimeout
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, FAILED, LIMITS, REFUSED, RESULT, THREE, network


@pytest.mark.parametrize(("version", "has_result"), [("0.3.1", False), ("0.4.0", True), ("1.0.0", True)])
async def test_delete_passes_the_result_from_0_4_0_on(
    plugins: FakePlugins, runtime: Runtime, version: str, has_result: bool
) -> None:
    """Plugins of versions before 0.4.0 receive no prevResult with DEL."""
    result = Result.from_document({**RESULT, "cniVersion": version})
    await runtime.delete(network({"type": "first"}, version=version), ATTACHMENT, result)
    assert ("prevResult" in plugins.commands[0].stdin) is has_result


async def test_delete_retries_a_failing_plugin_once(plugins: FakePlugins, runtime: Runtime) -> None:
    """Some plugins fail because something is already missing, and succeed the second time."""
    plugins.install("second", DEL=[{"error": {"code": 999, "msg": "Chain does not exist"}}, {}])
    await runtime.delete(THREE, ATTACHMENT, None)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("second", "DEL"), ("first", "DEL"))


async def test_a_delete_without_the_arguments_that_add_did_not_accept(plugins: FakePlugins, runtime: Runtime) -> None:
    """They may be why both fail; a plugin whose ADD has completed receives them each time."""
    for name in ("first", "second"):
        plugins.install(name, DEL=[{"error": {"code": 999, "msg": "IP: invalid CIDR"}}, {}])
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    given = [(command.plugin, command.environment.get("CNI_ARGS")) for command in plugins.commands]
    assert given == [
        ("third", "FOO=BAR"),
        ("second", "FOO=BAR"),
        ("second", ""),
        ("first", "FOO=BAR"),
        ("first", "FOO=BAR"),
    ]


@pytest.mark.parametrize("code", [1, 2, 7])
async def test_a_rejected_delete_counts_as_completed(plugins: FakePlugins, runtime: Runtime, code: int) -> None:
    """The ADD of the same version and configuration did not complete: nothing is left that needs DEL, now or later."""
    plugins.install("second", DEL={"error": {"code": code, "msg": "rejected"}})
    progress = Progress()
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1, on_deleted=progress.store)
    assert plugins.calls[-1] == ("first", "DEL")
    assert progress.stored == [{2}, {2, 1}, {2, 1, 0}]


@pytest.mark.parametrize("added_plugins", [0, 1, None])
async def test_an_unknown_container_counts_as_deleted(
    plugins: FakePlugins, runtime: Runtime, added_plugins: int | None
) -> None:
    """Code 3 means that nothing is left to delete; the plugin does not run again."""
    plugins.install("second", DEL={"error": {"code": 3, "msg": "unknown container"}})
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=added_plugins)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("first", "DEL"))


@pytest.mark.parametrize("code", [1, 2, 7, 999])
async def test_a_plugin_whose_add_has_completed_must_delete(plugins: FakePlugins, runtime: Runtime, code: int) -> None:
    """A plugin whose ADD has completed must complete DEL before the plugins before it run."""
    plugins.install("second", DEL={"error": {"code": code, "msg": "no"}})
    with pytest.raises(PluginFailed, match="no"):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=2)
    assert plugins.calls == (("third", "DEL"), ("second", "DEL"), ("second", "DEL"))


FAILURES: Final[dict[str, JsonObject]] = {
    "an unspecified error": {"error": {"code": 999, "msg": "xtables lock is held"}},
    "not ready": {"error": {"code": 11, "msg": "try again later"}},
    "an I/O error": {"error": {"code": 5, "msg": "cannot write"}},
    "a code of its own": {"error": {"code": 100, "msg": "private"}},
    "killed after an answer": {"error": {"code": 7, "msg": "invalid"}, "signal": 9},
    "killed": {"signal": 9},
}


@pytest.mark.parametrize("behaviour", FAILURES.values(), ids=FAILURES.keys())
async def test_a_failed_delete_after_an_incomplete_add_is_raised(
    plugins: FakePlugins, runtime: Runtime, behaviour: JsonObject
) -> None:
    """It is unknown what the plugin has made: the others are undone first, then the error keeps its DEL pending."""
    plugins.install("second", DEL=behaviour)
    progress = Progress()
    with pytest.raises(PluginFailed):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1, on_deleted=progress.store)
    assert plugins.calls[-1] == ("first", "DEL")
    assert progress.stored == [{2}, {2, 0}]


@pytest.mark.parametrize(("content", "error"), [(None, PluginNotFound), (b"\x7fELF but no more", PluginNotStarted)])
async def test_a_plugin_that_cannot_be_started_keeps_its_delete_pending(
    plugins: FakePlugins, runtime: Runtime, content: bytes | None, error: type[Exception]
) -> None:
    """It is being upgraded, or processes are exhausted: the others are undone, then the error is raised."""
    (plugins.directory / "second").unlink()
    if content is not None:
        plugins.install("second").write_bytes(content)
    with pytest.raises(error):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls == (("third", "DEL"), ("first", "DEL"))


@pytest.mark.parametrize("failure", [REFUSED, FAILED])
async def test_the_failed_delete_of_a_plugin_that_never_ran_is_ignored(
    plugins: FakePlugins, runtime: Runtime, failure: JsonObject
) -> None:
    """It has made nothing: a plugin starts only after the result of the one before it is stored."""
    plugins.install("third", DEL=failure)
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1)
    assert plugins.calls[-2:] == (("second", "DEL"), ("first", "DEL"))


async def test_delete_does_not_read_what_plugins_print(plugins: FakePlugins, runtime: Runtime) -> None:
    """DEL has no result: garbage on standard output is ignored if the plugin exits with 0."""
    plugins.install("first", DEL={"stdout": "garbage"})
    await runtime.delete(network({"type": "first"}), ATTACHMENT, None)


async def test_delete_has_a_time_limit_of_its_own(plugins: FakePlugins) -> None:
    """DEL after an ADD that timed out may take longer than ADD's limit."""
    plugins.install("slow", ADD={"sleep_s": 60}, DEL={"sleep_s": 1.2})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=1.0, delete_s=10.0))
    slow = network({"type": "slow"})
    with pytest.raises(PluginTimeout, match="after 1 s"):
        await runtime.add(slow, ATTACHMENT)
    await runtime.delete(slow, ATTACHMENT, None)
    assert plugins.calls == (("slow", "ADD"), ("slow", "DEL"))


async def test_delete_does_not_retry_a_plugin_that_hangs(plugins: FakePlugins) -> None:
    """A plugin that timed out is not run a second time."""
    plugins.install("slow", DEL={"sleep_s": 60})
    with pytest.raises(PluginTimeout):
        await Runtime([plugins.directory], replace(LIMITS, delete_s=1.0)).delete(
            network({"type": "slow"}), ATTACHMENT, None
        )
    assert plugins.calls == (("slow", "DEL"),)


class Progress:
    """Stores which plugins have completed DEL, as a caller does."""

    def __init__(self) -> None:
        self.stored: list[frozenset[int]] = []

    async def store(self, deleted: frozenset[int]) -> None:
        """Store one state."""
        self.stored.append(deleted)


async def test_a_repeated_delete_skips_completed_plugins(plugins: FakePlugins, runtime: Runtime) -> None:
    """The address may belong to another container meanwhile: a completed plugin must not run again."""
    plugins.install("first", DEL=[FAILED, FAILED, {}])
    progress = Progress()
    with pytest.raises(PluginFailed, match="xtables lock"):
        await runtime.delete(THREE, ATTACHMENT, None, on_deleted=progress.store)
    before = len(plugins.calls)
    await runtime.delete(THREE, ATTACHMENT, None, deleted=progress.stored[-1], on_deleted=progress.store)
    assert plugins.calls[before:] == (("first", "DEL"),)
    assert progress.stored == [{2}, {2, 1}, {2, 1, 0}]


async def test_a_plugin_runs_only_after_the_previous_progress_is_stored(plugins: FakePlugins, runtime: Runtime) -> None:
    """If the progress cannot be stored, no further plugin runs: the next attempt would repeat completed ones."""

    async def fail(_deleted: frozenset[int]) -> None:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await runtime.delete(THREE, ATTACHMENT, None, on_deleted=fail)
    assert plugins.calls == (("third", "DEL"),)


async def test_a_plugin_receives_no_result_if_its_address_is_in_use(plugins: FakePlugins, runtime: Runtime) -> None:
    """`firewall` finds its rules by address: without a result it leaves those of the container that has the address."""
    asked: list[tuple[str, int]] = []

    async def is_needed(plugin: str) -> bool:
        asked.append((plugin, len(plugins.calls)))
        return len(asked) > 1

    plugins.install("firewall", DEL=[FAILED, {}])
    walled = network({"type": "first"}, {"type": "firewall"}, {"type": "third"})
    await runtime.delete(walled, ATTACHMENT, Result.from_document(RESULT), hooks=DeleteHooks(is_needed=is_needed))
    received = [(command.plugin, "prevResult" in command.stdin) for command in plugins.commands]
    assert received == [("third", True), ("firewall", True), ("firewall", False), ("first", True)]
    assert asked == [("firewall", 1), ("firewall", 2)]


async def test_the_owner_of_an_address_is_looked_up_when_the_plugin_can_start(
    plugins: FakePlugins, tmp_path: Path
) -> None:
    """While DEL waits for an execution slot, or for another attempt, another container may get the address."""
    gate = tmp_path / "gate"
    plugins.install("slow", DEL={"wait_for": str(gate)})
    plugins.install("firewall", DEL=[{"error": {"code": 11, "msg": "busy"}}, {}])
    runtime = Runtime([plugins.directory], Limits(executions=1, retry_pauses_s=(0.0,)))
    asked: list[list[str]] = []

    async def is_needed(_: str) -> bool:
        asked.append([plugin for plugin, _ in plugins.calls])
        return False

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.delete(network({"type": "slow"}), ATTACHMENT, None))
        while not plugins.calls:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.01)
        other = replace(ATTACHMENT, container_id="other")
        walled = network({"type": "firewall"})
        tasks.create_task(
            runtime.delete(walled, other, Result.from_document(RESULT), hooks=DeleteHooks(is_needed=is_needed))
        )
        for _ in range(100):
            await asyncio.sleep(0)  # run it until it waits for the slot
        assert asked == []
        gate.touch()
    assert asked == [["slow"], ["slow", "firewall"]]


async def test_a_plugin_receives_what_its_add_received(plugins: FakePlugins, runtime: Runtime) -> None:
    """If not all plugins received the same attachment, each gets its own, whichever have completed DEL before."""

    def attachment_of(index: int) -> Attachment:
        return replace(ATTACHMENT, args=(("INDEX", str(index)),))

    await runtime.delete(THREE, ATTACHMENT, None, deleted=[1], hooks=DeleteHooks(attachment_of=attachment_of))
    received = [(command.plugin, command.environment["CNI_ARGS"]) for command in plugins.commands]
    assert received == [("third", "INDEX=2"), ("first", "INDEX=0")]
