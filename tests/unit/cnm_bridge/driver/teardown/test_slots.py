# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Teardowns that hang leave slots to others: to those that a call waits for, and to those that never hung."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from cni_bridge_state import EndpointId
from cnm_bridge.driver.teardown.slots import TeardownSlots

PLUGINS = 4


def ids(*numbers: int) -> list[EndpointId]:
    """Return IDs of endpoints."""
    return [EndpointId(f"{number:064x}") for number in numbers]


@asynccontextmanager
async def run_teardowns() -> AsyncIterator["Teardowns"]:
    """Yield an object that starts teardowns; those that still run are cancelled at the end."""
    async with asyncio.TaskGroup() as group:
        teardowns = Teardowns(group)
        yield teardowns
        await teardowns.end()


class Teardowns:
    """Teardowns with one plugin each, which runs until the end of the test.

    Attributes:
        running: The endpoints whose plugin runs, in the order in which they began.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.slots = TeardownSlots(PLUGINS)
        self.running: list[EndpointId] = []
        self._group = group
        self._tasks: dict[EndpointId, asyncio.Task[None]] = {}

    async def begin(self, endpoints: Iterable[EndpointId], network: str = "lan") -> None:
        """Start some teardowns, and run all of them until they wait."""
        for endpoint_id in endpoints:
            self._tasks[endpoint_id] = self._group.create_task(self._run(endpoint_id, network))
        await self.run_until_blocked()

    async def run_until_blocked(self) -> None:
        """Run all teardowns until they wait."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, *endpoints: EndpointId) -> None:
        """Cancel some teardowns, or all."""
        tasks = [self._tasks.pop(endpoint_id) for endpoint_id in endpoints or tuple(self._tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.run_until_blocked()

    async def _run(self, endpoint_id: EndpointId, network: str) -> None:
        async with self.slots.teardown(endpoint_id, network), self.slots.plugin(endpoint_id, network):
            self.running.append(endpoint_id)
            await asyncio.Event().wait()


async def test_preferred_teardowns_have_slots_of_their_own() -> None:
    """Teardowns that hang for the first time take all slots, except those of teardowns that a call waits for."""
    async with run_teardowns() as teardowns:
        endpoints = ids(*range(100))
        await teardowns.begin(endpoints)
        assert teardowns.running == endpoints[:PLUGINS]
        teardowns.slots.prefer([endpoints[PLUGINS]])  # it waits for the slot of its plugin
        await teardowns.run_until_blocked()
        teardowns.slots.prefer([endpoints[-1]])  # it waits to start
        await teardowns.run_until_blocked()
        teardowns.slots.prefer(ids(100))
        await teardowns.begin(ids(100))
        assert teardowns.running[PLUGINS:] == [endpoints[PLUGINS], endpoints[-1], *ids(100)]


@pytest.mark.parametrize("preferred", [False, True])
async def test_teardowns_that_hang_on_one_network_leave_slots_to_others(preferred: bool) -> None:
    """They hang for the first time, and calls wait for all of them, or for none."""
    async with run_teardowns() as teardowns:
        hanging, (other,) = ids(*range(100)), ids(100)
        if preferred:
            teardowns.slots.prefer([*hanging, other])
        await teardowns.begin(hanging)
        assert len(teardowns.running) == PLUGINS * (2 if preferred else 1)
        await teardowns.begin([other], "other")
        assert teardowns.running[-1] == other


async def test_teardowns_that_hung_before_take_half_of_the_slots() -> None:
    """However many they are, and even if a call waits for them, the other half is free for others."""
    async with run_teardowns() as teardowns:
        hung = ids(*range(100))
        for endpoint_id in hung:
            teardowns.slots.note_hung(endpoint_id)
        teardowns.slots.prefer(hung)
        await teardowns.begin(hung)
        assert len(teardowns.running) == PLUGINS // 2
        others = ids(*range(100, 200))
        await teardowns.begin(others)
        assert teardowns.running[PLUGINS // 2 :] == others[: PLUGINS - PLUGINS // 2]


async def test_a_teardown_that_succeeded_is_no_longer_limited() -> None:
    """Nothing is kept of an earlier hang."""
    async with run_teardowns() as teardowns:
        (endpoint_id,) = ids(1)
        teardowns.slots.note_hung(endpoint_id)
        teardowns.slots.forget_hung(endpoint_id)
        others = ids(*range(100, 110))
        await teardowns.begin(others)
        teardowns.slots.prefer([endpoint_id])
        await teardowns.begin([endpoint_id])
        assert teardowns.running[-1] == endpoint_id


async def test_a_preference_lasts_for_one_attempt() -> None:
    """The next attempt of the same teardown waits like all others."""
    async with run_teardowns() as teardowns:
        first, *others = ids(*range(20))
        teardowns.slots.prefer([first])
        await teardowns.begin([first])
        await teardowns.end(first)
        await teardowns.begin([*others, first])
        assert teardowns.running == [first, *others[:PLUGINS]]
