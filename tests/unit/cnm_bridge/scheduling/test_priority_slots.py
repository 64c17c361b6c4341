# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""So many at once, in the order in which they came, but for those that somebody waits for."""

import asyncio

from cnm_bridge.scheduling.priority_slots import PrioritySlots


class Work:
    """Bodies that run until they are told to end, and in which order they began."""

    def __init__(self, limit: int, for_preferred: int = 0) -> None:
        self.turns: PrioritySlots[str] = PrioritySlots(limit, for_preferred=for_preferred)
        self.began: list[str] = []
        self.running: dict[str, asyncio.Event] = {}

    async def run(self, key: str, *, preferred: bool = False) -> None:
        """Run the body of a key."""
        async with self.turns.take(key, preferred=preferred):
            self.began.append(key)
            self.running[key] = asyncio.Event()
            await self.running[key].wait()

    async def end(self, key: str) -> None:
        """End the body of a key, and let the next one begin."""
        self.running.pop(key).set()
        await settle()

    async def end_all(self) -> None:
        """End all bodies, one after the other."""
        while self.running:
            await self.end(next(iter(self.running)))


async def settle() -> None:
    """Let all tasks come as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_the_limit() -> None:
    """The others wait, and begin in the order in which they came."""
    work = Work(2)
    async with asyncio.TaskGroup() as tasks:
        for key in "abcd":
            tasks.create_task(work.run(key))
        await settle()
        assert work.began == ["a", "b"]
        await work.end("b")
        assert work.began == ["a", "b", "c"]
        await work.end_all()
    assert work.began == ["a", "b", "c", "d"]


async def test_the_preferred_go_first() -> None:
    """So does one that comes later and is preferred at once."""
    work = Work(1)
    async with asyncio.TaskGroup() as tasks:
        for key in "abcd":
            tasks.create_task(work.run(key))
        await settle()
        work.turns.prefer(["d"])
        tasks.create_task(work.run("late", preferred=True))
        await settle()
        await work.end_all()
    assert work.began[0] == "a"
    assert set(work.began[1:3]) == {"d", "late"}
    assert work.began[3:] == ["b", "c"]


async def test_turns_for_the_preferred() -> None:
    """There are some more turns that nobody else receives, for those that wait already and those that come."""
    work = Work(1, for_preferred=2)
    async with asyncio.TaskGroup() as tasks:
        for key in "abc":
            tasks.create_task(work.run(key))
        await settle()
        assert work.began == ["a"]
        work.turns.prefer(["c"])
        tasks.create_task(work.run("d", preferred=True))
        tasks.create_task(work.run("e", preferred=True))
        await settle()
        assert work.began == ["a", "c", "d"]
        await work.end("c")
        assert work.began == ["a", "c", "d", "e"]
        await work.end("d")
        assert "b" not in work.began
        await work.end("a")
        assert work.began[-1] == "b"
        await work.end_all()


async def test_one_that_is_cancelled() -> None:
    """Its turn is the next one's, whether it had begun, waited, or had just received it."""
    work = Work(1)
    async with asyncio.TaskGroup() as group:
        tasks = {key: group.create_task(work.run(key)) for key in "abcd"}
        await settle()
        tasks["b"].cancel()
        await settle()
        work.running.pop("a").set()
        await asyncio.sleep(0)  # `c` has its turn now, and has not begun
        tasks["c"].cancel()
        await settle()
        assert work.began == ["a", "d"]
        tasks["d"].cancel()
    async with work.turns.take("e"):
        pass


async def test_one_that_is_preferred_while_it_runs() -> None:
    """Its next turn is in the order in which it came: the preference was for the turn that it had."""
    work = Work(1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work.run("a"))
        await settle()
        work.turns.prefer(["a"])
        await work.end("a")
        for key in "bca":
            tasks.create_task(work.run(key))
        await settle()
        await work.end_all()
    assert work.began == ["a", "b", "c", "a"]
