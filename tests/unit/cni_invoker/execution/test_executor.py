# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""When a plugin may run, for how long, and how often."""

import asyncio
import time
from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Execution, Limits, NetworkConfigurationList, PluginFailed, Runtime, Verb
from cni_invoker.errors import PluginTimeout
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, THREE, network

HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""


LATER: JsonObject = {"error": {"code": 11, "msg": "try later"}}


def test_the_event_loop_may_have_another_clock(plugins: FakePlugins, runtime: Runtime) -> None:
    """Deadlines are on the clock of `time.monotonic`, whatever the event loop's shows."""

    class FromOne(asyncio.SelectorEventLoop):
        _begun = time.monotonic() - 1

        def time(self) -> float:
            return time.monotonic() - self._begun

    plugins.install("first", VERSION={"sleep_s": 0.2, "supportedVersions": ["1.0.0"]})
    with asyncio.Runner(loop_factory=FromOne) as runner:
        assert runner.run(runtime.version("first")).supported == ("1.0.0",)


async def test_code_11_is_retried(plugins: FakePlugins, runtime: Runtime) -> None:
    """ADD and DEL with code 11 (try again later) are retried a limited number of times, STATUS is not."""
    result: JsonObject = {"cniVersion": "1.1.0", "x": 1}
    plugins.install("first", ADD=[LATER, LATER, {"result": result}])
    one = network({"type": "first"})
    assert (await runtime.add(one, ATTACHMENT)).document == result
    plugins.install("first", DEL=LATER, STATUS=LATER)
    with pytest.raises(PluginFailed, match="try later"):
        await runtime.delete(one, ATTACHMENT, None)
    with pytest.raises(PluginFailed, match="try later"):
        await runtime.status(one)
    undone = [("first", "ADD"), ("first", "DEL")] * 2 + [("first", "ADD")]
    assert [call for call in plugins.calls if call[1] != "VERSION"] == [
        *undone,
        *[("first", "DEL")] * 3,
        ("first", "STATUS"),
    ]


async def test_an_add_is_undone_before_it_is_retried(plugins: FakePlugins, runtime: Runtime) -> None:
    """Between two ADDs the plugin receives DEL with the same input; the other plugins do not run again."""
    first: JsonObject = {"cniVersion": "1.1.0", "x": 1}
    plugins.install("first", ADD={"result": first})
    plugins.install("second", ADD=[LATER, {"passthrough": True}])
    capable = network({"type": "first"}, {"type": "second", "capabilities": {"portMappings": True}, "key": "value"})
    assert (await runtime.add(capable, ATTACHMENT)).document == first
    assert plugins.calls == (("first", "ADD"), ("second", "ADD"), ("second", "DEL"), ("second", "ADD"))
    add, delete, again = (command for command in plugins.commands if command.plugin == "second")
    assert delete.stdin == add.stdin == again.stdin
    assert delete.stdin["prevResult"] == first
    others = {"CNI_COMMAND"}
    assert {k: v for k, v in delete.environment.items() if k not in others} == {
        k: v for k, v in add.environment.items() if k not in others
    }


async def test_an_add_that_cannot_be_undone_is_not_retried(plugins: FakePlugins, runtime: Runtime) -> None:
    """ADD's error is raised with a note about the failed DEL, even if that failed with code 11 too."""
    for code in (999, 11):
        answer: JsonObject = {"error": {"code": code, "msg": "banana"}}
        plugins.install("first", ADD=LATER, DEL=answer)
        with pytest.raises(PluginFailed, match="try later") as caught:
            await runtime.add(network({"type": "first"}), ATTACHMENT)
        assert "could not be undone" in caught.value.__notes__[0]
        assert "banana" in caught.value.__notes__[0]
    assert plugins.calls == (("first", "ADD"), ("first", "DEL")) * 2


async def test_executions_are_observed(plugins: FakePlugins) -> None:
    """The observer receives plugin, verb, container ID, outcome and duration of each, failed ones included."""
    plugins.install("first", ADD={"sleep_s": 0.2})
    plugins.install("second", ADD={"error": {"code": 999, "msg": "banana"}})
    executions: list[Execution] = []
    started = time.monotonic()
    runtime = Runtime([plugins.directory], LIMITS, observer=executions.append)
    with pytest.raises(PluginFailed):
        await runtime.add(THREE, ATTACHMENT)
    assert [(one.plugin, one.verb, one.container_id, one.outcome) for one in executions] == [
        ("first", Verb.ADD, ATTACHMENT.container_id, "success"),
        ("second", Verb.ADD, ATTACHMENT.container_id, "PluginFailed"),
    ]
    assert 0.2 <= executions[0].duration_s <= time.monotonic() - started


async def test_executions_are_bounded(plugins: FakePlugins) -> None:
    """No more plugins than `executions` run at once; an operation that waits for `wait_s` fails without running."""
    plugins.install("slow", ADD={"sleep_s": 60, "ignore_sigterm": True})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=2.0, wait_s=1.0, executions=2))
    slow = network({"type": "slow"})
    errors: list[PluginTimeout] = []

    async def add(number: int) -> None:
        with pytest.raises(PluginTimeout) as caught:
            await runtime.add(slow, replace(ATTACHMENT, container_id=f"c{number}"))
        errors.append(caught.value)

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(add(number))
    assert sorted(error.started for error in errors) == [False, True, True]
    assert len(plugins.commands) == 2
    (waiting,) = (error for error in errors if not error.started)
    assert str(waiting) == (
        'plugin type="slow" failed (add): it was not started within 1 s: too many plugins are running'
    )


async def test_plugins_that_hang_on_one_network_do_not_stop_others(plugins: FakePlugins) -> None:
    """An ADD, a DEL and the first VERSION on another network run at once, although twelve ADDs and DELs hang on one."""
    plugins.install("slow", ADD={"sleep_s": 60}, DEL={"sleep_s": 60})
    runtime = Runtime([plugins.directory], LIMITS)
    hung = NetworkConfigurationList.from_document({"name": "hung", "plugins": [{"type": "slow"}]})
    async with asyncio.TaskGroup() as tasks:
        hanging: list[asyncio.Task[object]] = []
        for number in range(12):
            added, deleted = (replace(ATTACHMENT, container_id=f"{letter}{number}") for letter in "ad")
            hanging.append(tasks.create_task(runtime.add(hung, added)))
            hanging.append(tasks.create_task(runtime.delete(hung, deleted, None)))
        async with asyncio.timeout(HANG_LIMIT_S):
            while len(plugins.commands) < 2 * LIMITS.executions:  # noqa: ASYNC110  # other processes write them
                await asyncio.sleep(0.01)
            await runtime.version("first")
            plugins.install("first", ADD={"result": {"cniVersion": "1.1.0"}})
            await runtime.add(network({"type": "first"}), ATTACHMENT)
            await runtime.delete(network({"type": "first"}), ATTACHMENT, None)
        for task in hanging:
            task.cancel()
    assert [call[0] for call in plugins.calls].count("slow") == 2 * LIMITS.executions


async def test_the_time_limit_begins_when_the_plugin_starts(plugins: FakePlugins) -> None:
    """The time that an operation waits for its slot does not count."""
    plugins.install("slow", ADD={"sleep_s": 0.8})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=1.5, executions=1))
    slow = network({"type": "slow"})
    async with asyncio.TaskGroup() as tasks:
        for n in range(3):
            tasks.create_task(runtime.add(slow, replace(ATTACHMENT, container_id=f"c{n}")))
    assert len(plugins.calls) == 3


async def test_published_ports_extend_the_time_limit(plugins: FakePlugins) -> None:
    """The limits of ADD and DEL grow with the number of ports that a plugin receives, and not for other plugins."""
    for name in ("first", "second"):
        plugins.install(name, ADD={"sleep_s": 0.6}, DEL={"sleep_s": 0.6})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=0.3, delete_s=0.3, port_s=20.0))
    publisher = network({"type": "first", "capabilities": {"portMappings": True}})
    await runtime.add(publisher, ATTACHMENT)
    await runtime.delete(publisher, ATTACHMENT, None)
    other = network({"type": "second"})
    with pytest.raises(PluginTimeout):
        await runtime.add(other, ATTACHMENT)
    with pytest.raises(PluginTimeout):
        await runtime.delete(other, ATTACHMENT, None)


def test_the_time_for_published_ports_is_limited() -> None:
    """STATUS and VERSION get none, and a plugin that hangs is killed, however many ports it received."""
    limits = Limits(add_s=1.0, delete_s=2.0, version_s=6.0, port_s=0.5)
    assert [limits.timeout_s(verb, 10) for verb in (Verb.ADD, Verb.DEL, Verb.CHECK)] == [6.0, 7.0, 6.0]
    assert [limits.timeout_s(verb, 10) for verb in (Verb.STATUS, Verb.VERSION)] == [6.0, 6.0]
    assert limits.timeout_s(Verb.GC) == 1.0
    assert Limits().timeout_s(Verb.DEL, 10_001) == 660.0


def test_an_add_that_gets_a_lease_has_a_limit_of_its_own() -> None:
    """It is never longer than that of any other ADD, and there is none for DEL or for other IPAM plugins."""
    limits = Limits(add_s=60.0, dhcp_s=25.0, delete_s=50.0)
    assert [limits.timeout_s(verb, ipam="dhcp") for verb in (Verb.ADD, Verb.DEL)] == [25.0, 50.0]
    assert limits.timeout_s(Verb.ADD, ipam="host-local") == 60.0
    assert replace(limits, add_s=20.0).timeout_s(Verb.ADD, ipam="dhcp") == 20.0
    assert replace(limits, dhcp_s=None).timeout_s(Verb.ADD, ipam="dhcp") == 60.0
