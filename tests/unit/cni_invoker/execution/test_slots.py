# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whatever arrives, ends, becomes slow or is cancelled, in any order: the limits hold, and no slot is lost."""

import asyncio
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cni_invoker.execution.limits import NetworkSlots

pytestmark = pytest.mark.slow

NETWORKS = st.text("abcd", min_size=1, max_size=8)
TURNS = st.integers(0, 3)
"""Of the event loop after a step; a slot is granted and its body begins in different ones."""
NUMBERS = st.integers(0, 99)
SLOW_S = 2
SETTLED = 10
"""Turns after which nothing goes on by itself."""


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop that runs single turns, with a clock of its own."""

    now = 0

    def time(self) -> float:
        """Return the time in seconds."""
        return self.now

    def turn(self, count: int) -> None:
        """Run what is ready, so many times."""
        for _ in range(count):
            self.call_soon(self.stop)
            self.run_forever()


class AnyOrder(RuleBasedStateMachine):
    """Executions arrive, end, become slow and are cancelled."""

    @initialize(limit=st.integers(1, 5))
    def begin(self, limit: int) -> None:
        """Make the slots."""
        self.limit, self.reserve = limit, (limit + 1) // 2
        self.loop = SteppedLoop()
        self.slots: NetworkSlots[object] = NetworkSlots(limit, slow_s=SLOW_S)
        self.tasks: dict[asyncio.Task[None], str] = {}
        self.running: dict[asyncio.Event, tuple[str, int]] = {}  # the network, and when it began

    async def _run(self, network: str, *, preferred: bool) -> None:
        ends = asyncio.Event()
        async with self.slots.take(ends, network, preferred=preferred):
            self.running[ends] = network, self.loop.now
            try:
                await ends.wait()
            finally:
                del self.running[ends]

    @rule(networks=NETWORKS, preferred=st.booleans(), turns=TURNS)
    def arrive(self, networks: str, preferred: bool, turns: int) -> None:
        """Some more."""
        for network in networks:
            self.tasks[self.loop.create_task(self._run(network, preferred=preferred))] = network
        self.loop.turn(turns)

    @rule(number=NUMBERS, turns=TURNS)
    def end(self, number: int, turns: int) -> None:
        """One that runs ends."""
        if running := tuple(self.running):
            running[number % len(running)].set()
        self.loop.turn(turns)

    @rule(number=NUMBERS, turns=TURNS)
    def cancel(self, number: int, turns: int) -> None:
        """One is cancelled: before it waits, while it waits, between its grant and its begin, or while it runs."""
        if tasks := [task for task in self.tasks if not task.done()]:
            tasks[number % len(tasks)].cancel()
        self.loop.turn(turns)

    @rule(seconds=st.integers(1, SLOW_S), turns=TURNS)
    def pass_time(self, seconds: int, turns: int) -> None:
        """Those that run for long enough become slow."""
        self.loop.now += seconds
        self.loop.turn(turns)

    @rule()
    def settle(self) -> None:
        """Nothing waits without a reason: its network runs its share, or as many as possible are quick."""
        self.loop.turn(SETTLED)
        networks = Counter(network for network, _ in self.running.values())
        waiting = Counter(network for task, network in self.tasks.items() if not task.done()) - networks
        for own in (networks[network] for network in waiting):
            assert own == self.limit or self._count_quick() >= self.limit + (0 if own else self.reserve)

    @invariant()
    def the_limits_hold(self) -> None:
        """Of each network, and of all quick ones."""
        networks = Counter(network for network, _ in self.running.values())
        assert max(networks.values(), default=0) <= self.limit
        assert self._count_quick() <= self.limit + self.reserve

    def teardown(self) -> None:
        """All are served, and then all slots are free."""
        try:
            while not all(task.done() for task in self.tasks):
                self.settle()
                assert self.running or all(task.done() for task in self.tasks)
                for ends in self.running:
                    ends.set()
            self.loop.turn(SETTLED)
            self.arrive("a" * self.limit + "bcd"[: self.reserve], preferred=False, turns=SETTLED)
            assert len(self.running) == self.limit + self.reserve
        finally:
            for task in self.tasks:
                task.cancel()
            self.loop.turn(SETTLED)
            self.loop.close()

    def _count_quick(self) -> int:
        return sum(self.loop.now - began < SLOW_S for _, began in self.running.values())


AnyOrderTest = AnyOrder.TestCase
AnyOrderTest.settings = settings(max_examples=50, deadline=None)


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
