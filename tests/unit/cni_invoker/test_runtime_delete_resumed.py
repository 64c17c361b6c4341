# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A DEL over a list that was interrupted resumes where it stopped."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import Attachment, Limits, PluginFailed, Result, Runtime
from cni_invoker.advanced import DeleteHooks
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, FAILED, REFUSED, RESULT, THREE, network


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


async def test_a_failed_delete_after_an_incomplete_add_is_pending_alone(plugins: FakePlugins, runtime: Runtime) -> None:
    """The other plugins have completed DEL, and do not run again with it."""
    plugins.install("second", DEL={"error": {"code": 11, "msg": "try again later"}})
    progress = Progress()
    with pytest.raises(PluginFailed, match="try again later"):
        await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1, on_deleted=progress.store)
    assert progress.stored == [{2}, {2, 0}]


async def test_a_plugin_that_rejects_its_delete_has_completed(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin that rejected its ADD has nothing to delete, now or later."""
    plugins.install("second", DEL=REFUSED)
    progress = Progress()
    await runtime.delete(THREE, ATTACHMENT, None, added_plugins=1, on_deleted=progress.store)
    assert progress.stored == [{2}, {2, 1}, {2, 1, 0}]


async def test_a_plugin_receives_no_result_if_its_address_is_in_use(plugins: FakePlugins, runtime: Runtime) -> None:
    """`firewall` finds its rules by address: without a result it leaves those of the container that has the address.

    The address is looked up just before each execution, when the later plugins have completed.
    """
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
