# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Limits concurrent teardowns, so that plugins that hang do not hold up the others.

Work on which a Docker call waits goes first. Each network has a share, by the rules of the library's executions
(`cni_invoker/execution/limits.py`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final, Generic, TypeVar

from cni_bridge_state import EndpointId
from cni_invoker.advanced import SLOW_S, NetworkShares, Turn
from cnm_bridge.driver.teardown.pending import Pending, Urgency

_TEARDOWNS: Final = 8
"""Minimum number of concurrent teardowns. With 16 the event loop is blocked twice as long, and they gain little."""
K = TypeVar("K", bound=Hashable)


class TeardownSlots:
    """Slots for teardowns, and fewer for their plugins.

    The same number of slots again is reserved for teardowns that a call waits for. Each network has a share, so that
    plugins that hang on one do not hold up the others. A plugin that was killed because it hung will probably hang
    again, so all teardowns with such a plugin share half of the slots.

    Args:
        plugins: Number of plugin slots, and of additional ones for teardowns that a call waits for.
    """

    def __init__(self, plugins: int) -> None:
        teardowns = max(_TEARDOWNS, 2 * plugins)
        self._teardowns: PrioritySlots[EndpointId] = PrioritySlots(teardowns, for_preferred=teardowns)
        self._plugins: PrioritySlots[EndpointId] = PrioritySlots(plugins, for_preferred=plugins)
        self._for_hung = asyncio.Semaphore(max(1, plugins // 2))

    def prefer(self, teardowns: Iterable[Pending]) -> None:
        """Let the next or running attempt of these go first, except those with a plugin that hung."""
        preferred = [pending for pending in teardowns if not pending.has_hung]
        for pending in preferred:
            pending.expedite(Urgency.FIRST)
        endpoints = [pending.key for pending in preferred]
        self._teardowns.prefer(endpoints)
        self._plugins.prefer(endpoints)

    @asynccontextmanager
    async def teardown(self, pending: Pending, network: str) -> AsyncIterator[None]:
        """Run the body, a teardown on a CNI network, in a slot of its own."""
        try:
            async with (
                self._for_hung if pending.has_hung else nullcontext(),
                self._teardowns.take(pending.key, network, preferred=pending.urgency is Urgency.FIRST),
            ):
                yield
        finally:
            pending.urgency = Urgency.NORMAL

    def plugin(self, pending: Pending, network: str) -> AbstractAsyncContextManager[None]:
        """Return the slot of one execution of a plugin, for a teardown on a CNI network."""
        return self._plugins.take(pending.key, network, preferred=pending.urgency is Urgency.FIRST)


class _Turn(Turn):
    """A waiting or running body.

    Attributes:
        is_preferred: Whether it goes first.
        given: Set when it may run.
        shares: Where it counts when it runs.
    """

    def __init__(self, network: str, number: int, shares: NetworkShares) -> None:
        super().__init__(network, number)
        self.is_preferred = False
        self.given = asyncio.Event()
        self.shares = shares


class PrioritySlots(Generic[K]):
    """Limits the number of bodies that run concurrently; the others wait, each under its own key.

    Args:
        limit: Number of slots, as for `NetworkShares`.
        for_preferred: Number of additional slots, for preferred keys only.
        slow_s: After how many seconds a body no longer counts against other networks.
    """

    def __init__(self, limit: int, *, for_preferred: int = 0, slow_s: float = SLOW_S) -> None:
        self._shares = NetworkShares(limit)
        self._shares_of_preferred = NetworkShares(for_preferred)
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

    def _find_ready(self, line: OrderedDict[K, _Turn]) -> tuple[K, _Turn] | None:
        """Return the first one of a network if it may run now."""
        key, turn = next(iter(line.items()))
        is_ordinary = self._shares.admits(turn.network)
        turn.shares = self._shares if is_ordinary or not turn.is_preferred else self._shares_of_preferred
        return (key, turn) if is_ordinary or turn.shares.admits(turn.network) else None

    def _rank(self, turn: _Turn) -> tuple[bool, int, int]:
        return not turn.is_preferred, self._shares.running(turn.network), turn.number

    def _remove(self, key: K) -> None:
        network = self._networks.pop(key)
        del self._waiting[network][key]
        if not self._waiting[network]:
            del self._waiting[network]

    def _slow_down(self, turn: _Turn) -> None:
        turn.shares.slow_down(turn)
        self._give()
