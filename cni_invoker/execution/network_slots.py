# SPDX-License-Identifier: Apache-2.0
"""Which execution starts next, so that plugins that hang on one network do not stop all others.

A plugin that hangs uses no processor, and no plugin can be asked to give its slot back. So there are three rules:

* A network runs at most `count` executions.
* All networks together run `count` that have begun less than `SLOW_S` ago, and half as many more that are the only ones
  of their networks.
* The next one to start is of the network that runs the fewest; of several, the one that arrived first.

So an execution waits only while its own network runs `count`, or while others have begun within the last `SLOW_S`.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from cni_invoker.locks import reset_in_child
from cni_invoker.waiting import Waiter

SLOW_S: Final = 2.0
"""After this time an execution no longer counts against other networks; most take less than a tenth of it."""


class Turn:
    """One execution that waits or runs.

    Args:
        network: The network that it counts for.
        number: Its number in the order of arrival.
    """

    def __init__(self, network: str, number: int) -> None:
        self.network = network
        self.number = number
        self.is_quick = False  # it runs and counts against other networks
        self.since = 0.0  # when it began, by `time.monotonic`


class NetworkShares:
    """Counts those that run, by the first two rules; without clock and tasks.

    Args:
        count: How many run at once: of one network, and of all that are not slow.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._reserved = (count + 1) // 2
        self._quick = 0
        self._running: Counter[str] = Counter()

    def running(self, network: str) -> int:
        """Return how many of a network run."""
        return self._running[network]

    def admits(self, network: str) -> bool:
        """Return whether one more of a network may run."""
        running = self._running[network]
        return running < self._count and self._quick < self._count + (0 if running else self._reserved)

    def begin(self, turn: Turn) -> None:
        """Count one more."""
        self._running[turn.network] += 1
        self._quick += 1
        turn.is_quick = True

    def slow_down(self, turn: Turn) -> None:
        """Count one that runs for its own network only."""
        if turn.is_quick:
            turn.is_quick = False
            self._quick -= 1

    def end(self, turn: Turn) -> None:
        """Count one less."""
        self.slow_down(turn)
        self._running[turn.network] -= 1
        if not self._running[turn.network]:
            del self._running[turn.network]


class Admission:
    """Those that wait and those that run, by all three rules; without clock and tasks."""

    def __init__(self, count: int) -> None:
        self.shares = NetworkShares(count)
        self._arrived = 0
        self._waiting: dict[str, deque[Turn]] = {}

    def arrive(self, network: str) -> Turn:
        """Add an execution to those that wait; the caller calls `admit` next."""
        self._arrived += 1
        turn = Turn(network, self._arrived)
        self._waiting.setdefault(network, deque()).append(turn)
        return turn

    def admit(self) -> Iterator[Turn]:
        """Yield those that may run now; they count as running."""
        while first := [line[0] for network, line in self._waiting.items() if self.shares.admits(network)]:
            turn = min(first, key=lambda turn: (self.shares.running(turn.network), turn.number))
            self._remove(turn)
            self.shares.begin(turn)
            yield turn

    def give_up(self, turn: Turn) -> bool:
        """Remove one that waits; return False if it has been admitted."""
        if turn not in self._waiting.get(turn.network, ()):
            return False
        self._remove(turn)
        return True

    def _remove(self, turn: Turn) -> None:
        line = self._waiting[turn.network]
        line.remove(turn)
        if not line:
            del self._waiting[turn.network]


class NetworkSlots:
    """Slots for executions, given by the rules of `Admission`; for the tasks of all event loops and threads."""

    def __init__(self, count: int, slow_s: float = SLOW_S) -> None:
        self._count = count
        self._slow_s = slow_s
        reset_in_child(self, NetworkSlots._reset)

    def _reset(self) -> None:
        """Forget all executions that wait or run."""
        self._admission = Admission(self._count)
        self._waiters: dict[Turn, Waiter] = {}
        self._running: set[Turn] = set()
        self._mutex = threading.Lock()  # held for some instructions, never while a task waits

    @asynccontextmanager
    async def held(self, network: str) -> AsyncIterator[None]:
        """Run the body as soon as it has a slot."""
        turn, waiter = self._arrive(network)
        if waiter is not None:
            try:
                while not await waiter.wait(self._next_slow_s()):
                    self._slow_down()
            except BaseException:  # a cancellation, or the end of a time limit
                self._give_up(turn)
                raise
        try:
            yield
        finally:
            with self._mutex:
                self._running.discard(turn)
                self._admission.shares.end(turn)
                self._serve()

    def _arrive(self, network: str) -> tuple[Turn, Waiter | None]:
        """Return a new turn, and what to wait for; None if it has its slot."""
        with self._mutex:
            turn = self._admission.arrive(network)
            self._end_quick()
            if turn in self._serve():
                return turn, None
            waiter = self._waiters[turn] = Waiter()
            return turn, waiter

    def _give_up(self, turn: Turn) -> None:
        with self._mutex:
            if not self._admission.give_up(turn):
                self._running.discard(turn)
                self._admission.shares.end(turn)  # it was admitted at that moment
            self._waiters.pop(turn, None)
            self._serve()

    def _next_slow_s(self) -> float | None:
        """Return after how many seconds a running execution becomes slow; None: none can."""
        with self._mutex:
            begun = [turn.since for turn in self._running if turn.is_quick]
        return max(0.0, min(begun) + self._slow_s - time.monotonic()) if begun else None

    def _slow_down(self) -> None:
        with self._mutex:
            self._end_quick()
            self._serve()

    def _end_quick(self) -> None:
        """Count those that have become slow for their own networks only. Who waits looks, so no timer is needed."""
        before = time.monotonic() - self._slow_s
        for turn in self._running:
            if turn.since <= before:
                self._admission.shares.slow_down(turn)

    def _serve(self) -> list[Turn]:
        """Wake up those that may run; return those that need not be woken up."""
        awake = []
        for turn in self._admission.admit():
            turn.since = time.monotonic()
            self._running.add(turn)
            waiter = self._waiters.pop(turn, None)
            if waiter is None:
                awake.append(turn)
            elif not waiter.grant():
                self._running.discard(turn)
                self._admission.shares.end(turn)
        return awake
