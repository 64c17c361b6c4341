# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tear downs that hang leave places to the others: to those that a call waits for, and to those that never hung."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from cnm_bridge.teardown.places import TearDownPlaces
from state import EndpointId

PLUGINS = 4


def ids(*numbers: int) -> list[EndpointId]:
    """Give IDs of endpoints."""
    return [EndpointId(f"{number:064x}") for number in numbers]


@asynccontextmanager
async def make_tear_downs() -> AsyncIterator["TearDowns"]:
    """Give what begins tear downs; those that run are ended."""
    async with asyncio.TaskGroup() as group:
        tear_downs = TearDowns(group)
        yield tear_downs
        await tear_downs.end()


class TearDowns:
    """Tear downs with one plugin each, which runs until the end of the test.

    Attributes:
        running: The endpoints whose plugin runs, in the order in which they began.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.places = TearDownPlaces(PLUGINS)
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
        async with self.places.tear_down(endpoint_id):
            place = self.places.find_plugin_place(endpoint_id)
            assert place is not None
            async with place():
                self.running.append(endpoint_id)
                await asyncio.Event().wait()


async def test_those_that_hang_for_the_first_time() -> None:
    """They take every place but those of tear downs that a call waits for, which wait already or come later."""
    async with make_tear_downs() as tear_downs:
        everybody = ids(*range(100))
        await tear_downs.begin(everybody)
        assert tear_downs.running == everybody[:PLUGINS]
        tear_downs.places.prefer([everybody[PLUGINS]])  # it waits for its plugin
        await tear_downs.settle()
        tear_downs.places.prefer([everybody[-1]])  # it waits to begin
        await tear_downs.settle()
        tear_downs.places.prefer(ids(100))
        await tear_downs.begin(ids(100))
        assert tear_downs.running[PLUGINS:] == [everybody[PLUGINS], everybody[-1], *ids(100)]


async def test_those_that_hung_before() -> None:
    """However many they are, and also when a call waits for them, half of the places are free for others."""
    async with make_tear_downs() as tear_downs:
        hung = ids(*range(100))
        for endpoint_id in hung:
            tear_downs.places.has_hung(endpoint_id)
        tear_downs.places.prefer(hung)
        await tear_downs.begin(hung)
        assert len(tear_downs.running) == PLUGINS // 2
        others = ids(*range(100, 200))
        await tear_downs.begin(others)
        assert tear_downs.running[PLUGINS // 2 :] == others[: PLUGINS - PLUGINS // 2]


async def test_one_that_hung_once() -> None:
    """When its tear down has succeeded nothing of that is kept."""
    async with make_tear_downs() as tear_downs:
        (endpoint_id,) = ids(1)
        tear_downs.places.has_hung(endpoint_id)
        tear_downs.places.has_not_hung(endpoint_id)
        others = ids(*range(100, 110))
        await tear_downs.begin(others)
        tear_downs.places.prefer([endpoint_id])
        await tear_downs.begin([endpoint_id])
        assert tear_downs.running[-1] == endpoint_id


async def test_a_preference_is_for_one_attempt() -> None:
    """The next attempt of the same tear down waits as all others do."""
    async with make_tear_downs() as tear_downs:
        first, *others = ids(*range(20))
        tear_downs.places.prefer([first])
        await tear_downs.begin([first])
        await tear_downs.end(first)
        await tear_downs.begin([*others, first])
        assert tear_downs.running == [first, *others[:PLUGINS]]


async def test_what_a_call_carries_out_itself() -> None:
    """Its plugins do not count here."""
    (endpoint_id,) = ids(1)
    assert TearDownPlaces(PLUGINS).find_plugin_place(endpoint_id) is None
