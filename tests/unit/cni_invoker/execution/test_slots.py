# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executions that hang on some networks delay those of other networks for a limited time, and never stop them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cni_invoker.execution.slots import NetworkSlots

HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""


@asynccontextmanager
async def hanging(slots: NetworkSlots[object], networks: str) -> AsyncIterator[None]:
    """Keep an execution of each of these networks waiting or running."""

    async def hang(network: str) -> None:
        async with slots.take(object(), network):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(hang(network)) for network in networks]
        await asyncio.sleep(0)
        yield
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize("networks", ["a" * 12, "aaaabbbbccccdddd"])
async def test_a_healthy_network_gets_a_slot(networks: str) -> None:
    """However many executions of other networks hang, and although none of them ends."""
    slots: NetworkSlots[object] = NetworkSlots(4, slow_s=0.01)
    async with asyncio.timeout(HANG_LIMIT_S), hanging(slots, networks):
        for _ in range(8):
            async with slots.take("healthy", "healthy"):
                pass


async def test_executions_that_begin_to_hang_later() -> None:
    """Its own network is in the way at first, and then those of another one: until they are slow."""
    slots: NetworkSlots[object] = NetworkSlots(2, slow_s=0.01)
    ends = asyncio.Event()

    async def run(until: asyncio.Event) -> None:
        async with slots.take(object(), "a"):
            await until.wait()

    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(run(ends))
        hung = tasks.create_task(run(asyncio.Event()))
        await asyncio.sleep(0.02)  # both are slow
        last = tasks.create_task(run(ends))
        await asyncio.sleep(0)
        async with hanging(slots, "bb"):
            ends.set()
            await last
        hung.cancel()


async def test_a_cancelled_execution_frees_its_slot() -> None:
    """Whether it ran, waited, or had just received its slot."""
    slots: NetworkSlots[object] = NetworkSlots(1)
    async with hanging(slots, "aaa"):
        pass

    async def hang() -> None:
        async with slots.take(object(), "a"):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        running, admitted = group.create_task(hang()), group.create_task(hang())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)  # `admitted` has the slot now, and has not begun
        admitted.cancel()
    async with asyncio.timeout(HANG_LIMIT_S), slots.take(object(), "a"):
        pass
