# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executions that hang on some networks delay those of other networks for a limited time, and never stop them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cni_invoker.execution.limits import Admission, NetworkSlots, Turn

NETWORKS = st.sampled_from("abcdefgh")
HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""


class AnyOrder(RuleBasedStateMachine):
    """Executions arrive, give up, become slow and end in any order."""

    @initialize(count=st.integers(1, 6))
    def begin(self, count: int) -> None:
        """Make the slots."""
        self.count = count
        self.admission = Admission(count)
        self.waiting: list[Turn] = []
        self.quick: list[Turn] = []
        self.slow: list[Turn] = []

    @rule(network=NETWORKS)
    def arrive(self, network: str) -> None:
        """One more execution."""
        self.waiting.append(self.admission.arrive(network))
        self._admit()

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A call that waits is cancelled."""
        if self.waiting:
            turn = data.draw(st.sampled_from(self.waiting))
            self.waiting.remove(turn)
            assert self.admission.give_up(turn)
            self._admit()

    @rule(data=st.data())
    def slow_down(self, data: st.DataObject) -> None:
        """A plugin runs for long."""
        if self.quick:
            turn = data.draw(st.sampled_from(self.quick))
            self.quick.remove(turn)
            self.slow.append(turn)
            self.admission.shares.slow_down(turn)
            self._admit()

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A plugin ends."""
        if running := [*self.quick, *self.slow]:
            turn = data.draw(st.sampled_from(running))
            (self.quick if turn in self.quick else self.slow).remove(turn)
            assert not self.admission.give_up(turn)
            self.admission.shares.end(turn)
            self._admit()

    @invariant()
    def a_network_runs_no_more_than_its_share(self) -> None:
        """Slow executions are counted."""
        assert all(running <= self.count for running in self._running().values())

    @invariant()
    def the_processors_are_not_overloaded(self) -> None:
        """Half as many more than `count` run besides the slow ones."""
        assert len(self.quick) <= self.count + (self.count + 1) // 2

    @invariant()
    def nothing_waits_without_a_reason(self) -> None:
        """The network runs its share, or `count` quick ones run; for a network that runs none, the reserve is used."""
        running = self._running()
        for turn in self.waiting:
            own = running[turn.network]
            assert own == self.count or len(self.quick) >= self.count + (0 if own else (self.count + 1) // 2)

    @invariant()
    def networks_that_hang_stop_no_other(self) -> None:
        """When all that runs is slow, only networks with a whole share of slow ones wait."""
        if not self.quick:
            assert all(self._running()[turn.network] == self.count for turn in self.waiting)

    def _admit(self) -> None:
        for turn in self.admission.admit():
            running = self._running()
            rivals = [other for other in self.waiting if other.network == turn.network]
            assert turn is rivals[0]  # within a network, the first one to arrive
            assert all(running[turn.network] <= running[other.network] for other in self.waiting)
            self.waiting.remove(turn)
            self.quick.append(turn)

    def _running(self) -> Counter[str]:
        return Counter(turn.network for turn in (*self.quick, *self.slow))


AnyOrderTest = AnyOrder.TestCase


@given(count=st.integers(1, 8), arrivals=st.integers(1, 30))
def test_a_lone_network_uses_all_slots(count: int, arrivals: int) -> None:
    """It runs as many as there are."""
    admission = Admission(count)
    for _ in range(arrivals):
        admission.arrive("a")
    assert len(list(admission.admit())) == min(count, arrivals)


def test_the_network_that_runs_least_comes_first() -> None:
    """A network with many that wait does not delay the few of another, which arrived later."""
    admission = Admission(2)
    first, *_ = [admission.arrive("a") for _ in range(8)]
    assert len(list(admission.admit())) == 2
    late = [admission.arrive("b") for _ in range(2)]
    assert list(admission.admit()) == late[:1]  # in the reserve
    admission.shares.end(late[0])
    admission.shares.end(first)
    assert list(admission.admit()) == [late[1]]


@asynccontextmanager
async def hanging(slots: NetworkSlots, networks: str) -> AsyncIterator[None]:
    """Keep an execution of each of these networks waiting or running."""

    async def hang(network: str) -> None:
        async with slots.held(network):
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
    slots = NetworkSlots(4, slow_s=0.01)
    async with asyncio.timeout(HANG_LIMIT_S), hanging(slots, networks):
        for _ in range(8):
            async with slots.held("healthy"):
                pass


async def test_executions_that_begin_to_hang_later() -> None:
    """Its own network is in the way at first, and then those of another one: until they are slow."""
    slots = NetworkSlots(2, slow_s=0.01)
    ends = asyncio.Event()

    async def run(until: asyncio.Event) -> None:
        async with slots.held("a"):
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
    slots = NetworkSlots(1)
    async with hanging(slots, "aaa"):
        pass

    async def hang() -> None:
        async with slots.held("a"):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        running, admitted = group.create_task(hang()), group.create_task(hang())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)  # `admitted` has the slot now, and has not begun
        admitted.cancel()
    async with asyncio.timeout(HANG_LIMIT_S), slots.held("a"):
        pass
