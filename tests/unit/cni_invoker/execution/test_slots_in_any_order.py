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
