# SPDX-License-Identifier: Apache-2.0
"""Slots for executions of plugins, by network: plugins that hang on one network must not stop those of others.

* A network runs at most `limit` at once.
* All networks together run at most `limit` that began less than `SLOW_S` ago. Half as many more may run, each as the
  only one of its network.
* The next one is a preferred one, then one of the network that runs the fewest, then the first to arrive.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

SLOW_S: Final = 2.0
"""After this time an execution no longer counts against other networks; most take less than a tenth of it."""

K = TypeVar("K", bound=Hashable)


class NetworkSlots(Generic[K]):
    """Runs a limited number of bodies at once; the others wait, each under its own key.

    Args:
        limit: Number of slots, by the rules above.
        for_preferred: Number of additional slots, for preferred keys only.
        slow_s: After how many seconds a body no longer counts against other networks.
    """

    def __init__(self, limit: int, *, for_preferred: int = 0, slow_s: float = SLOW_S) -> None:
        self._shares = _Shares(limit)
        self._shares_of_preferred = _Shares(for_preferred)
        self._slow_s = slow_s
        self._arrived = 0
        self._networks: dict[K, str] = {}  # of the waiting keys
        self._waiting: dict[str, OrderedDict[K, _Turn]] = {}  # in each network, preferred ones first

    def prefer(self, keys: Iterable[K]) -> None:
        """Move the waiting bodies of these keys to the front."""
        for key in self._networks.keys() & frozenset(keys):
            line = self._waiting[self._networks[key]]
            line[key].is_preferred = True
            line.move_to_end(key, last=False)
        self._give()

    @asynccontextmanager
    async def take(self, key: K, network: str, *, preferred: bool = False) -> AsyncIterator[None]:
        """Run the body as soon as a slot is free; a preferred key goes first."""
        self._arrived += 1
        turn = _Turn(network, self._arrived, self._shares)
        self._networks[key] = network
        self._waiting.setdefault(network, OrderedDict())[key] = turn
        self.prefer((key,) if preferred else ())
        slow = None
        try:
            await turn.given.wait()
            slow = asyncio.get_running_loop().call_later(self._slow_s, self._slow_down, turn)
            yield
        finally:
            if slow is not None:
                slow.cancel()
            if turn.given.is_set():
                turn.shares.end(turn)
                self._give()
            else:
                self._remove(key)

    def _give(self) -> None:
        """Grant free slots to those that go first."""
        while ready := [found for line in self._waiting.values() if (found := self._find_ready(line)) is not None]:
            key, turn = min(ready, key=lambda found: self._rank(found[1]))
            self._remove(key)
            turn.shares.begin(turn)
            turn.given.set()

    def _find_ready(self, line: "OrderedDict[K, _Turn]") -> "tuple[K, _Turn] | None":
        """Return the first one of a network if it may run now."""
        key, turn = next(iter(line.items()))
        is_ordinary = self._shares.admits(turn.network)
        turn.shares = self._shares if is_ordinary or not turn.is_preferred else self._shares_of_preferred
        return (key, turn) if is_ordinary or turn.shares.admits(turn.network) else None

    def _rank(self, turn: "_Turn") -> tuple[bool, int, int]:
        return not turn.is_preferred, self._shares.running[turn.network], turn.number

    def _remove(self, key: K) -> None:
        network = self._networks.pop(key)
        del self._waiting[network][key]
        if not self._waiting[network]:
            del self._waiting[network]

    def _slow_down(self, turn: "_Turn") -> None:
        turn.shares.slow_down(turn)
        self._give()


class _Turn:
    """A body of a network that waits or runs, with its number in the order of arrival."""

    def __init__(self, network: str, number: int, shares: "_Shares") -> None:
        self.network = network
        self.number = number
        self.shares = shares  # where it counts when it runs
        self.is_preferred = False
        self.is_quick = False  # it runs and counts against other networks
        self.given = asyncio.Event()


class _Shares:
    """Counts those that run, by the first two rules."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reserved = (limit + 1) // 2
        self._quick = 0
        self.running: Counter[str] = Counter()

    def admits(self, network: str) -> bool:
        """Return whether one more of a network may run."""
        running = self.running[network]
        return running < self._limit and self._quick < self._limit + (0 if running else self._reserved)

    def begin(self, turn: _Turn) -> None:
        """Count one more."""
        self.running[turn.network] += 1
        self._quick += 1
        turn.is_quick = True

    def slow_down(self, turn: _Turn) -> None:
        """Count one that runs for its own network only."""
        if turn.is_quick:
            turn.is_quick = False
            self._quick -= 1

    def end(self, turn: _Turn) -> None:
        """Count one less."""
        self.slow_down(turn)
        self.running[turn.network] -= 1
        if not self.running[turn.network]:
            del self.running[turn.network]
