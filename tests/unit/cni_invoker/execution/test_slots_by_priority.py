# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A limited number of slots is given in the order of arrival, preferred keys first."""

import asyncio

from cni_invoker.execution.limits import NetworkSlots


class Work:
    """Bodies that run until the test ends them, in the order in which they began."""

    def __init__(self, limit: int, for_preferred: int = 0, slow_s: float = 1000.0) -> None:
        self.slots: NetworkSlots[str] = NetworkSlots(limit, for_preferred=for_preferred, slow_s=slow_s)
        self.began: list[str] = []
        self.running: dict[str, asyncio.Event] = {}

    async def run(self, key: str, *, network: str = "lan", preferred: bool = False) -> None:
        """Run the body of a key."""
        async with self.slots.take(key, network, preferred=preferred):
            self.began.append(key)
            self.running[key] = asyncio.Event()
            await self.running[key].wait()

    async def end(self, key: str) -> None:
        """End the body of a key, and let the next one begin."""
        self.running.pop(key).set()
        await run_until_blocked()

    async def end_all(self) -> None:
        """End all bodies, one after another."""
        while self.running:
            await self.end(next(iter(self.running)))


async def run_until_blocked() -> None:
    """Run all tasks until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_preferred_keys_come_first() -> None:
    """This includes a key that arrives later and is preferred from the start."""
    work = Work(1)
    async with asyncio.TaskGroup() as tasks:
        for key in "abcd":
            tasks.create_task(work.run(key))
        await run_until_blocked()
        work.slots.prefer(["d"])
        tasks.create_task(work.run("late", preferred=True))
        await run_until_blocked()
        await work.end_all()
    assert work.began[0] == "a"
    assert set(work.began[1:3]) == {"d", "late"}
    assert work.began[3:] == ["b", "c"]


async def test_preferred_keys_have_additional_slots() -> None:
    """No other key gets these slots, which serve keys that already wait and keys that arrive."""
    work = Work(1, for_preferred=2)
    async with asyncio.TaskGroup() as tasks:
        for key in "abc":
            tasks.create_task(work.run(key))
        await run_until_blocked()
        assert work.began == ["a"]
        work.slots.prefer(["c"])
        tasks.create_task(work.run("d", preferred=True))
        tasks.create_task(work.run("e", preferred=True))
        await run_until_blocked()
        assert work.began == ["a", "c", "d"]
        await work.end("c")
        assert work.began == ["a", "c", "d", "e"]
        await work.end("d")
        assert "b" not in work.began
        await work.end("a")
        assert work.began[-1] == "b"
        await work.end_all()


async def test_a_preference_ends_with_the_running_body() -> None:
    """A key that was preferred while it ran waits in the order of arrival the next time."""
    work = Work(1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work.run("a"))
        await run_until_blocked()
        work.slots.prefer(["a"])
        await work.end("a")
        for key in "bca":
            tasks.create_task(work.run(key))
        await run_until_blocked()
        await work.end_all()
    assert work.began == ["a", "b", "c", "a"]


async def started(work: Work, tasks: asyncio.TaskGroup, *keys: str) -> list[str]:
    """Let bodies of the network in their first letter arrive; return all that run."""
    for key in keys:
        tasks.create_task(work.run(key, network=key[0]))
    await run_until_blocked()
    return sorted(work.running)


async def test_networks_share_the_slots() -> None:
    """One alone uses all; of several together half as many more run, each as the only one of its network."""
    work = Work(4)
    async with asyncio.TaskGroup() as tasks:
        assert await started(work, tasks, *(f"a{number}" for number in range(6))) == ["a0", "a1", "a2", "a3"]
        assert (await started(work, tasks, "b0", "b1", "c0", "d0"))[4:] == ["b0", "c0"]
        await work.end_all()


async def test_the_network_that_runs_least_comes_first() -> None:
    """A network with many that wait does not delay the few of another, which arrived later."""
    work = Work(2)
    async with asyncio.TaskGroup() as tasks:
        await started(work, tasks, *(f"a{number}" for number in range(8)))
        assert await started(work, tasks, "b0", "b1") == ["a0", "a1", "b0"]  # in the reserve
        await work.end("b0")
        await work.end("a0")
        assert sorted(work.running) == ["a1", "b1"]
        await work.end_all()
