# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each key has one holder and at most one task, and keys are independent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from cnm_bridge.system.scheduling import KeyedLocks, KeyedTasks


async def test_holders_of_one_key_are_serialized() -> None:
    """The second waits for the first, in the order of arrival."""
    locks: KeyedLocks[str] = KeyedLocks()
    order: list[str] = []
    inside = asyncio.Event()

    async def hold(name: str, until: asyncio.Event) -> None:
        async with locks.hold("key"):
            order.append(f"{name} in")
            inside.set()
            await until.wait()
            order.append(f"{name} out")

    first, second = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hold("first", first))
        await inside.wait()
        tasks.create_task(hold("second", second))
        second.set()
        await asyncio.sleep(0)
        first.set()
    assert order == ["first in", "first out", "second in", "second out"]


async def test_other_keys_are_independent() -> None:
    """Two keys can be held at the same time."""
    locks: KeyedLocks[str] = KeyedLocks()
    async with asyncio.timeout(5), locks.hold("a"), locks.hold("b"):
        pass


class Works:
    """Work that waits until it is allowed to go on."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.allowed = asyncio.Event()

    async def work(self, name: str) -> None:
        """Wait, and note how that ended."""
        self.log.append(f"{name} begins")
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            self.log.append(f"{name} is cancelled")
            raise
        self.log.append(f"{name} ends")


@asynccontextmanager
async def running(tasks: KeyedTasks[str]) -> AsyncIterator[None]:
    """Run tasks during the block, and let them go on at its end."""
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(tasks.run())
        yield
        await turns()
        task.cancel()


async def turns() -> None:
    """Let other tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_new_work_takes_the_place_of_earlier_work() -> None:
    """Only of the same key."""
    tasks, works = KeyedTasks[str]("test"), Works()
    async with running(tasks):
        tasks.begin("a", lambda: works.work("first"))
        tasks.begin("b", lambda: works.work("other"))
        await turns()
        tasks.begin("a", lambda: works.work("second"))
        await turns()
        works.allowed.set()
    assert sorted(works.log[:2]) == ["first begins", "other begins"]
    assert sorted(works.log[2:4]) == ["first is cancelled", "second begins"]
    assert sorted(works.log[4:]) == ["other ends", "second ends"]


async def test_work_is_cancelled_from_outside_only() -> None:
    """Work that cancels that of its own key goes on."""
    tasks, works = KeyedTasks[str]("test"), Works()

    async def cancel_itself() -> None:
        tasks.cancel("a")
        await works.work("a")

    async with running(tasks):
        tasks.begin("a", cancel_itself)
        tasks.begin("b", lambda: works.work("b"))
        await turns()
        tasks.cancel("b")
        tasks.cancel("unknown")
        await turns()
        works.allowed.set()
    assert works.log == ["a begins", "b begins", "b is cancelled", "a ends"]


async def test_a_bug() -> None:
    """It is logged, and ends no other work."""
    tasks, works = KeyedTasks[str]("test"), Works()

    async def fail() -> None:
        raise ZeroDivisionError("a bug")

    with capture_logs() as logs:
        async with running(tasks):
            tasks.begin("a", fail)
            tasks.begin("b", lambda: works.work("b"))
            await turns()
            works.allowed.set()
    assert works.log == ["b begins", "b ends"]
    assert [(one["event"], one["work"], one["key"]) for one in logs] == [("background.bug", "test", "a")]
