# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who gets his turn and when, for how long, and how often."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    Limits,
    NetworkConfigurationList,
    PluginFailed,
    PluginTimeout,
    Runtime,
    TraceContext,
    Verb,
)
from spec import JsonObject, JsonValue
from tests.plugins import FakePlugins

ATTACHMENT = Attachment(
    container_id="some-container-id",
    ifname="eth0",
    netns="/run/netns/c1",
    capability_args={"portMappings": [{"hostPort": 8080}]},
)
LIMITS = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, retry_pauses_s=(0.01, 0.02), executions=4)


def network(*plugins: JsonValue) -> NetworkConfigurationList:
    """Make a list."""
    return NetworkConfigurationList.from_document(
        {"name": "some-list", "cniVersion": "1.1.0", "plugins": list(plugins)}
    )


THREE = network({"type": "first"}, {"type": "second"}, {"type": "third"})


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Three fake plugins."""
    plugins = FakePlugins(tmp_path / "bin")
    for plugin_type in ("first", "second", "third"):
        plugins.install(plugin_type)
    return plugins


@pytest.fixture(name="runtime")
def make_runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds them."""
    return Runtime([plugins.directory], LIMITS)


LATER: JsonObject = {"error": {"code": 11, "msg": "try later"}}


async def test_try_again_later(plugins: FakePlugins, runtime: Runtime) -> None:
    """A plugin that asks for patience gets some, and no more than is allowed."""
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


async def test_an_add_that_is_tried_again_is_undone_before(plugins: FakePlugins, runtime: Runtime) -> None:
    """Between two ADDs of one plugin there is a DEL with all that was given to the first, and the others are spared."""
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


async def test_an_add_that_cannot_be_undone_is_not_tried_again(plugins: FakePlugins, runtime: Runtime) -> None:
    """The plugin's own error is told, and why there was only one attempt; be it that DEL, too, is not ready."""
    for code in (999, 11):
        answer: JsonObject = {"error": {"code": code, "msg": "banana"}}
        plugins.install("first", ADD=LATER, DEL=answer)
        with pytest.raises(PluginFailed, match="try later") as caught:
            await runtime.add(network({"type": "first"}), ATTACHMENT)
        assert "could not be undone" in caught.value.__notes__[0]
        assert "banana" in caught.value.__notes__[0]
    assert plugins.calls == (("first", "ADD"), ("first", "DEL")) * 2


async def test_a_trace_is_told_to_plugins(plugins: FakePlugins) -> None:
    """Each execution belongs to the span there is at its time."""
    spans = [TraceContext(traceparent=f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{n}-01") for n in range(3)]
    left = iter(spans)
    runtime = Runtime([plugins.directory], LIMITS, find_trace=lambda: next(left))
    await runtime.add(THREE, ATTACHMENT)
    assert [command.environment["TRACEPARENT"] for command in plugins.commands] == [span.traceparent for span in spans]


async def test_cancellation_kills_the_plugin(plugins: FakePlugins, runtime: Runtime) -> None:
    """A cancelled ADD leaves no process behind, and further ones can run."""
    plugins.install("slow", ADD={"sleep_s": 60})
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(runtime.add(network({"type": "slow"}), ATTACHMENT))
        async with asyncio.timeout(5):
            while not plugins.commands:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
        task.cancel()
    assert task.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(plugins.commands[0].pid, 0)


class Peak:
    """Notes every execution."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Verb, float]] = []

    def on_execution(self, plugin: str, verb: Verb, duration_s: float) -> None:
        """Take note of one."""
        self.seen.append((plugin, verb, duration_s))


async def test_executions_are_observed(plugins: FakePlugins) -> None:
    """Whoever wants to know learns what each execution took, also of those that fail."""
    plugins.install("first", ADD={"sleep_s": 0.2})
    plugins.install("second", ADD={"error": {"code": 999, "msg": "banana"}})
    peak = Peak()
    runtime = Runtime([plugins.directory], LIMITS, observer=peak)
    with pytest.raises(PluginFailed):
        await runtime.add(THREE, ATTACHMENT)
    assert [(plugin, verb) for plugin, verb, _ in peak.seen] == [("first", Verb.ADD), ("second", Verb.ADD)]
    assert 0.2 < peak.seen[0][2] < 5


async def test_executions_are_bounded(plugins: FakePlugins) -> None:
    """No more plugins than allowed run at once; one that does not get its turn in time is told so, and has not run."""
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


async def test_delete_does_not_wait_for_adds_that_hang(plugins: FakePlugins) -> None:
    """However many plugins hang in ADD, a DEL gets its turn at once, and has all its time."""
    plugins.install("slow", ADD={"sleep_s": 60})
    runtime = Runtime([plugins.directory], replace(LIMITS, executions=1))
    slow = network({"type": "slow"})
    async with asyncio.TaskGroup() as tasks:
        adds = [tasks.create_task(runtime.add(slow, replace(ATTACHMENT, container_id=f"c{n}"))) for n in range(3)]
        async with asyncio.timeout(5):
            while not plugins.commands:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.01)
            await runtime.delete(THREE, ATTACHMENT, None)
        for add in adds:
            add.cancel()
    assert len(plugins.calls) == 4


async def test_the_time_of_a_plugin_begins_when_it_starts(plugins: FakePlugins) -> None:
    """Who had to wait for his turn has as much time as the others."""
    plugins.install("slow", ADD={"sleep_s": 0.8})
    runtime = Runtime([plugins.directory], replace(LIMITS, add_s=1.5, executions=1))
    slow = network({"type": "slow"})
    async with asyncio.TaskGroup() as tasks:
        for n in range(3):
            tasks.create_task(runtime.add(slow, replace(ATTACHMENT, container_id=f"c{n}")))
    assert len(plugins.calls) == 3


async def test_first_users_of_shared_chains_go_one_by_one(plugins: FakePlugins) -> None:
    """Until one ADD of such a plugin has succeeded, the others wait; then all run at once."""
    plugins.install("portmap", ADD=[{"error": {"code": 999, "msg": "first"}}, {"sleep_s": 0.3}])
    peak = Peak()
    runtime = Runtime([plugins.directory], replace(LIMITS, executions=8), observer=peak)
    portmap = network({"type": "portmap", "capabilities": {"portMappings": True}})
    loop = asyncio.get_running_loop()
    ends: list[float] = []

    async def add(number: int) -> None:
        try:
            await runtime.add(portmap, replace(ATTACHMENT, container_id=f"c{number}"))
        except PluginFailed:
            return
        ends.append(loop.time())

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(add(number))
    assert len(ends) == 4
    assert ends[1] - ends[0] >= 0.3
    assert ends[-1] - ends[1] < 0.3


async def test_who_publishes_many_ports_has_more_time(plugins: FakePlugins) -> None:
    """The limits of ADD and DEL grow with the number of ports that a plugin is given, and not for the others."""
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


def test_limits_of_ports() -> None:
    """Verbs without containers have nothing to do with ports."""
    limits = Limits(add_s=1.0, delete_s=2.0, check_s=3.0, gc_s=4.0, status_s=5.0, version_s=6.0, port_s=0.5)
    assert [limits.timeout_s(verb, 10) for verb in (Verb.ADD, Verb.DEL, Verb.CHECK)] == [6.0, 7.0, 8.0]
    assert [limits.timeout_s(verb, 10) for verb in (Verb.GC, Verb.STATUS, Verb.VERSION)] == [4.0, 5.0, 6.0]


def test_the_time_for_ports_is_limited() -> None:
    """However many ports a plugin that hangs was given, it is ended."""
    limits = Limits(add_s=1.0, delete_s=2.0, check_s=3.0, port_s=0.5, ports_s=60.0)
    assert [limits.timeout_s(verb, 10_000) for verb in (Verb.ADD, Verb.DEL, Verb.CHECK)] == [61.0, 62.0, 63.0]
    assert Limits().timeout_s(Verb.DEL, 10_001) == 660.0
