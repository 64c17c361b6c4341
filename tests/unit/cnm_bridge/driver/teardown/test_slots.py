# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Teardowns that hang leave slots to others: to those that a call waits for, and to those that never hung."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from cni_bridge_state import EndpointId
from cnm_bridge.driver.teardown.pending import Pending, TeardownSlots

PLUGINS = 4
SLOTS = 2 * PLUGINS


def teardowns_of(*numbers: int) -> list[Pending]:
    """Return pending teardowns."""
    return [Pending(key=EndpointId(f"{number:064x}")) for number in numbers]


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
        running: The teardowns whose plugin runs, in the order in which they began.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.slots = TeardownSlots(PLUGINS)
        self.running: list[Pending] = []
        self._group = group
        self._tasks: dict[Pending, asyncio.Task[None]] = {}

    async def begin(self, teardowns: Iterable[Pending], network: str = "lan") -> None:
        """Start some teardowns, and run all of them until they wait."""
        for pending in teardowns:
            self._tasks[pending] = self._group.create_task(self._run(pending, network))
        await self.run_until_blocked()

    async def run_until_blocked(self) -> None:
        """Run all teardowns until they wait."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, *teardowns: Pending) -> None:
        """Cancel some teardowns, or all."""
        tasks = [self._tasks.pop(pending) for pending in teardowns or tuple(self._tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.run_until_blocked()

    async def _run(self, pending: Pending, network: str) -> None:
        async with self.slots.take(pending, network):
            self.running.append(pending)
            await asyncio.Event().wait()


async def test_preferred_teardowns_have_slots_of_their_own() -> None:
    """Teardowns that hang for the first time take all slots, except those of teardowns that a call waits for."""
    async with run_teardowns() as teardowns:
        many, new = teardowns_of(*range(100)), teardowns_of(100)
        await teardowns.begin(many)
        assert teardowns.running == many[:SLOTS]
        teardowns.slots.prefer([many[-1]])  # it waits to start
        await teardowns.run_until_blocked()
        teardowns.slots.prefer(new)
        await teardowns.begin(new)
        assert teardowns.running[SLOTS:] == [many[-1], *new]


@pytest.mark.parametrize("preferred", [False, True])
async def test_teardowns_that_hang_on_one_network_leave_slots_to_others(preferred: bool) -> None:
    """They hang for the first time, and calls wait for all of them, or for none."""
    async with run_teardowns() as teardowns:
        hanging, (other,) = teardowns_of(*range(100)), teardowns_of(100)
        if preferred:
            teardowns.slots.prefer([*hanging, other])
        await teardowns.begin(hanging)
        assert len(teardowns.running) == SLOTS * (2 if preferred else 1)
        await teardowns.begin([other], "other")
        assert teardowns.running[-1] == other
