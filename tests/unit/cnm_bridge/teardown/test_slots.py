# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tear downs that hang leave slots to the others: to those that a call waits for, and to those that never hung."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from cnm_bridge.teardown.slots import TeardownSlots
from state import EndpointId

PLUGINS = 4


def ids(*numbers: int) -> list[EndpointId]:
    """Give IDs of endpoints."""
    return [EndpointId(f"{number:064x}") for number in numbers]


@asynccontextmanager
async def make_tear_downs() -> AsyncIterator["TearDowns"]:
    """Give what begins tear downs; those that run are ended."""
    async with asyncio.TaskGroup() as group:
        teardowns = TearDowns(group)
        yield teardowns
        await teardowns.end()


class TearDowns:
    """Tear downs with one plugin each, which runs until the end of the test.

    Attributes:
        running: The endpoints whose plugin runs, in the order in which they began.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.slots = TeardownSlots(PLUGINS)
        self.running: list[EndpointId] = []
        self._group = group
        self._tasks: dict[EndpointId, asyncio.Task[None]] = {}

    async def begin(self, endpoints: Iterable[EndpointId]) -> None:
        """Begin some tear downs, and let all come as far as they can."""
        for endpoint_id in endpoints:
            self._tasks[endpoint_id] = self._group.create_task(self._run(endpoint_id))
        await self.settle()

    async def settle(self) -> None:
        """Let all come as far as they can."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, *endpoints: EndpointId) -> None:
        """End some tear downs, or all."""
        tasks = [self._tasks.pop(endpoint_id) for endpoint_id in endpoints or tuple(self._tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.settle()

    async def _run(self, endpoint_id: EndpointId) -> None:
        async with self.slots.teardown(endpoint_id):
            slot = self.slots.find_plugin_slot(endpoint_id)
            assert slot is not None
            async with slot():
                self.running.append(endpoint_id)
                await asyncio.Event().wait()


async def test_those_that_hang_for_the_first_time() -> None:
    """They take every slot but those of tear downs that a call waits for, which wait already or come later."""
    async with make_tear_downs() as teardowns:
        everybody = ids(*range(100))
        await teardowns.begin(everybody)
        assert teardowns.running == everybody[:PLUGINS]
        teardowns.slots.prefer([everybody[PLUGINS]])  # it waits for its plugin
        await teardowns.settle()
        teardowns.slots.prefer([everybody[-1]])  # it waits to begin
        await teardowns.settle()
        teardowns.slots.prefer(ids(100))
        await teardowns.begin(ids(100))
        assert teardowns.running[PLUGINS:] == [everybody[PLUGINS], everybody[-1], *ids(100)]


async def test_those_that_hung_before() -> None:
    """However many they are, and also when a call waits for them, half of the slots are free for others."""
    async with make_tear_downs() as teardowns:
        hung = ids(*range(100))
        for endpoint_id in hung:
            teardowns.slots.has_hung(endpoint_id)
        teardowns.slots.prefer(hung)
        await teardowns.begin(hung)
        assert len(teardowns.running) == PLUGINS // 2
        others = ids(*range(100, 200))
        await teardowns.begin(others)
        assert teardowns.running[PLUGINS // 2 :] == others[: PLUGINS - PLUGINS // 2]


async def test_one_that_hung_once() -> None:
    """When its tear down has succeeded nothing of that is kept."""
    async with make_tear_downs() as teardowns:
        (endpoint_id,) = ids(1)
        teardowns.slots.has_hung(endpoint_id)
        teardowns.slots.has_not_hung(endpoint_id)
        others = ids(*range(100, 110))
        await teardowns.begin(others)
        teardowns.slots.prefer([endpoint_id])
        await teardowns.begin([endpoint_id])
        assert teardowns.running[-1] == endpoint_id


async def test_a_preference_is_for_one_attempt() -> None:
    """The next attempt of the same tear down waits as all others do."""
    async with make_tear_downs() as teardowns:
        first, *others = ids(*range(20))
        teardowns.slots.prefer([first])
        await teardowns.begin([first])
        await teardowns.end(first)
        await teardowns.begin([*others, first])
        assert teardowns.running == [first, *others[:PLUGINS]]


async def test_what_a_call_carries_out_itself() -> None:
    """Its plugins do not count here."""
    (endpoint_id,) = ids(1)
    assert TeardownSlots(PLUGINS).find_plugin_slot(endpoint_id) is None
