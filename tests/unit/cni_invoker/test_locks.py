# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who waits for whom; one runtime serves one event loop after the other."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from cni_invoker import Limits, Runtime
from cni_invoker.errors import NetworkBusy
from cni_invoker.waiting import TaskLocks
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, THREE


class Locks:
    """Locks with one limit for all operations."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._locks = TaskLocks()

    def attachment(self, network: str, container_id: str) -> AbstractAsyncContextManager[None]:
        """Lock a container on a network."""
        return self._locks.hold(network, container_id, wait_s=self._wait_s)

    def exclusive(self, network: str) -> AbstractAsyncContextManager[None]:
        """Lock a whole network."""
        return self._locks.hold(network, None, wait_s=self._wait_s)


class Visits:
    """Tasks that enter a gate and stay inside until the test lets them leave."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._leave: dict[str, asyncio.Event] = {}
        self.inside: list[str] = []

    async def begin(self, name: str, gate: AbstractAsyncContextManager[None]) -> None:
        """Start a task that enters a gate, and run all tasks until they wait."""
        self._leave[name] = asyncio.Event()
        self._tasks.create_task(self._visit(name, gate))
        await run_until_blocked()

    async def end(self, *names: str) -> None:
        """Let tasks leave, and run all tasks until they wait."""
        for name in names:
            self._leave[name].set()
        await run_until_blocked()

    async def _visit(self, name: str, gate: AbstractAsyncContextManager[None]) -> None:
        async with gate:
            self.inside.append(name)
            await self._leave[name].wait()
            self.inside.remove(name)


async def run_until_blocked() -> None:
    """Run every task until it has to wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_attachments_share_a_network_and_gc_is_exclusive() -> None:
    """GC waits for the operations that run; operations that come later wait for GC, so that it cannot starve."""
    locks = Locks(10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("a", locks.attachment("net", "a"))
        await visits.begin("b", locks.attachment("net", "b"))
        await visits.begin("gc", locks.exclusive("net"))
        await visits.begin("c", locks.attachment("net", "c"))
        assert visits.inside == ["a", "b"]
        await visits.end("a")
        assert visits.inside == ["b"]
        await visits.end("b")
        assert visits.inside == ["gc"]
        await visits.end("gc")
        assert visits.inside == ["c"]
        await visits.end("c")


async def test_each_network_has_its_own_gate() -> None:
    """GC of one network holds up neither GC nor attachments of another."""
    locks = Locks(10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("gc", locks.exclusive("net"))
        await visits.begin("other gc", locks.exclusive("other"))
        await visits.begin("third", locks.attachment("third", "a"))
        assert visits.inside == ["gc", "other gc", "third"]
        await visits.end("gc", "other gc", "third")


async def test_operations_on_one_container_are_serialized() -> None:
    """Two operations on one container run one after the other, also on different networks."""
    locks = Locks(10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("add", locks.attachment("net", "a"))
        await visits.begin("add elsewhere", locks.attachment("other", "a"))
        await visits.begin("gc", locks.exclusive("third"))
        assert visits.inside == ["add", "gc"]
        await visits.end("add")
        assert visits.inside == ["gc", "add elsewhere"]
        await visits.end("gc", "add elsewhere")


async def test_waiting_ends_with_network_busy() -> None:
    """An operation that waits for `wait_s` raises NetworkBusy, and blocks no other operation afterwards."""
    locks = Locks(0.02)
    async with locks.attachment("net", "a"):
        for gate in (locks.exclusive("net"), locks.attachment("net", "a"), locks.attachment("other", "a")):
            with pytest.raises(NetworkBusy, match=r"network (net|other) .* after 0.02 s") as caught:
                async with gate:
                    pytest.fail("it must not be entered")
            assert caught.value.code == 11
        async with locks.attachment("net", "b"):
            pass
    async with locks.exclusive("net"):
        with pytest.raises(NetworkBusy):
            async with locks.attachment("net", "a"):
                pytest.fail("it must not be entered")
    async with locks.exclusive("net"), locks.attachment("other", "a"):
        pass


async def test_an_error_of_the_body_propagates() -> None:
    """An error of the body, even TimeoutError, is raised unchanged, and all locks are released."""
    locks = Locks(0.02)
    with pytest.raises(TimeoutError):
        async with locks.attachment("net", "a"):
            raise TimeoutError
    with pytest.raises(TimeoutError):
        async with locks.exclusive("net"):
            raise TimeoutError
    async with locks.exclusive("net"), locks.attachment("other", "a"):
        pass


def test_a_second_event_loop(plugins: FakePlugins) -> None:
    """A runtime works in one event loop after the other, although tasks have waited for each other in the first."""
    runtime = Runtime(plugins.directory, Limits(executions=1))

    async def live(number: int) -> None:
        attachment = replace(ATTACHMENT, container_id=f"c{number}")
        await runtime.delete(THREE, attachment, await runtime.add(THREE, attachment))

    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(live(number))

    for _ in range(2):
        asyncio.run(several())
