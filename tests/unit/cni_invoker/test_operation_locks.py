# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who works on a network or a container at the same time, and who waits."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from cni_invoker import NetworkBusy
from cni_invoker.operation_locks import Gates


class Visits:
    """Tasks that pass a gate and stay inside until they are told to leave."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._leave: dict[str, asyncio.Event] = {}
        self.inside: list[str] = []

    async def begin(self, name: str, door: AbstractAsyncContextManager[None]) -> None:
        """Let `name` go to a door, and get as far as possible."""
        self._leave[name] = asyncio.Event()
        self._tasks.create_task(self._visit(name, door))
        await settle()

    async def end(self, *names: str) -> None:
        """Let visitors leave, and the others go on as far as possible."""
        for name in names:
            self._leave[name].set()
        await settle()

    async def _visit(self, name: str, door: AbstractAsyncContextManager[None]) -> None:
        async with door:
            self.inside.append(name)
            await self._leave[name].wait()
            self.inside.remove(name)


async def settle() -> None:
    """Let every task go on until it has to wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_containers_go_in_together_and_gc_alone() -> None:
    """GC waits for who is inside; who comes after it waits for it, so that it is not put off for ever."""
    gates = Gates(wait_s=10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("a", gates.attachment("net", "a"))
        await visits.begin("b", gates.attachment("net", "b"))
        await visits.begin("gc", gates.exclusive("net"))
        await visits.begin("c", gates.attachment("net", "c"))
        assert visits.inside == ["a", "b"]
        await visits.end("a")
        assert visits.inside == ["b"]
        await visits.end("b")
        assert visits.inside == ["gc"]
        await visits.end("gc")
        assert visits.inside == ["c"]
        await visits.end("c")


async def test_gc_of_one_network_is_nothing_to_another() -> None:
    """Every network has a gate of its own."""
    gates = Gates(wait_s=10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("gc", gates.exclusive("net"))
        await visits.begin("other gc", gates.exclusive("other"))
        await visits.begin("third", gates.attachment("third", "a"))
        assert visits.inside == ["gc", "other gc", "third"]
        await visits.end("gc", "other gc", "third")


async def test_a_container_is_worked_on_by_one() -> None:
    """Two operations on one container come one after the other, on whatever networks."""
    gates = Gates(wait_s=10)
    async with asyncio.TaskGroup() as tasks:
        visits = Visits(tasks)
        await visits.begin("add", gates.attachment("net", "a"))
        await visits.begin("add elsewhere", gates.attachment("other", "a"))
        await visits.begin("gc", gates.exclusive("third"))
        assert visits.inside == ["add", "gc"]
        await visits.end("add")
        assert visits.inside == ["gc", "add elsewhere"]
        await visits.end("gc", "add elsewhere")


async def test_waiting_has_a_limit() -> None:
    """Whoever waits for too long is told so, and is in nobody's way afterwards."""
    gates = Gates(wait_s=0.02)
    async with gates.attachment("net", "a"):
        for door in (gates.exclusive("net"), gates.attachment("net", "a"), gates.attachment("other", "a")):
            with pytest.raises(NetworkBusy, match=r"network (net|other) .* after 0.02 s") as caught:
                async with door:
                    pytest.fail("it is not free")
            assert caught.value.code == 11
        async with gates.attachment("net", "b"):
            pass
    async with gates.exclusive("net"):
        with pytest.raises(NetworkBusy):
            async with gates.attachment("net", "a"):
                pytest.fail("it is not free")
    async with gates.exclusive("net"), gates.attachment("other", "a"):
        pass


async def test_a_limit_of_ones_own() -> None:
    """Who keeps the others waiting while he waits may be less patient than they are."""
    gates = Gates(wait_s=10)
    async with gates.attachment("net", "a"):
        with pytest.raises(NetworkBusy, match=r"after 0.01 s"):
            async with gates.exclusive("net", 0.01):
                pytest.fail("it is not free")


async def test_what_the_body_raises_goes_through() -> None:
    """An error inside, be it a timeout, is not taken for one of waiting, and leaves everything free."""
    gates = Gates(wait_s=0.02)
    with pytest.raises(TimeoutError):
        async with gates.attachment("net", "a"):
            raise TimeoutError
    with pytest.raises(TimeoutError):
        async with gates.exclusive("net"):
            raise TimeoutError
    async with gates.exclusive("net"), gates.attachment("other", "a"):
        pass


async def test_gates_nobody_uses_are_forgotten() -> None:
    """A runtime that lives for years does not collect the locks of all containers there ever were."""
    gates = Gates(wait_s=1)
    for number in range(3):
        async with gates.attachment(f"net{number}", f"c{number}"), gates.exclusive("net"):
            pass
    assert (len(gates._gates), len(gates._containers)) == (0, 0)
