# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The pending teardowns: one record for each endpoint, with all that this run of the daemon knows of its teardown.

Their number at once is limited, so that plugins that hang do not hold up the others. Work on which a Docker call waits
goes first. Each network has a share, by the rules of the library's executions (`cni_invoker/execution/limits.py`).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cni_bridge_state import EndpointId, EndpointRecord
from cni_invoker.advanced import NetworkSlots
from cnm_bridge.system.retries import Retries, Retry

_LEAST: Final = 4
"""The least number of teardowns at once: on a small host, too, some wait for the kernel or for a plugin that hangs."""


class Urgency(IntEnum):
    """When the next or running attempt of a teardown gets its turn."""

    DEFERRED = 0
    """When Docker is quiet."""
    NORMAL = 1
    FIRST = 2
    """Before all others, because a call waits for it."""


@dataclass(eq=False, slots=True)
class Undo:
    """The undo of a refused attempt to create or join an endpoint, whose call is still waiting for it."""

    kept: EndpointRecord | None
    """The record that is stored again afterwards, None to remove the endpoint."""
    is_restoring: bool = False
    """Whether `kept` is being stored."""


@dataclass(eq=False, slots=True, kw_only=True)
class Pending(Retry[EndpointId]):
    """One pending teardown, from its request until it completes; its key is the endpoint."""

    urgency: Urgency = Urgency.NORMAL
    """When the next or running attempt gets its turn."""
    undo: Undo | None = None
    """What it undoes, if a call waits for that; None otherwise, or if the call no longer waits."""
    deleted: frozenset[int] = frozenset()
    """The indexes of the plugins whose DEL has completed, also if that could not be stored."""
    has_begun: bool = False
    """Whether its plugins may have run: it was found that no container uses the endpoint."""
    has_hung: bool = False
    """Whether a plugin was killed because it hung, and none has answered since."""
    is_running: bool = False
    """Whether an attempt is running, under the endpoint's lock."""
    is_requested: bool = False
    """Whether Docker requested it from this run of the daemon."""
    is_unstored: bool = False
    """Whether DELETING could not be stored."""

    @property
    def is_tried(self) -> bool:
        """Whether an attempt has ended."""
        return self.is_done or self.attempts > 0

    @property
    def is_leaving(self) -> bool:
        """Whether an attempt is running, or the first one is about to begin."""
        return not self.is_tried or self.is_running

    @property
    def kept(self) -> EndpointRecord | None:
        """The record that stays; None if the endpoint is removed."""
        return None if self.undo is None else self.undo.kept

    def expedite(self, urgency: Urgency = Urgency.NORMAL) -> None:
        """Have it begin now if it is deferred, and give it at least some urgency."""
        if self.urgency is Urgency.DEFERRED:
            self.wake.set()
        self.urgency = max(self.urgency, urgency)


class PendingTeardowns(Retries[EndpointId, Pending]):
    """The pending teardowns."""

    def __init__(self) -> None:
        super().__init__(lambda endpoint_id: Pending(key=endpoint_id))
        self.ended: Counter[str] = Counter()
        """CNI network → how many attempts have ended, without those to undo a refused attempt."""

    def begin(self, endpoint_id: EndpointId) -> Pending:
        """Add the teardown of an endpoint, to begin at once; one that has failed is tried again at once."""
        pending = self.add(endpoint_id)
        if pending.attempts:
            pending.wake.set()
        return pending

    @property
    def begun(self) -> frozenset[EndpointId]:
        """The endpoints whose plugins may have run DEL."""
        return frozenset(endpoint_id for endpoint_id, pending in self.all.items() if pending.has_begun)


class TeardownSlots:
    """Slots for teardowns, each of which executes one plugin at a time and works on links in between.

    The same number of slots again is reserved for teardowns that a call waits for. Each network has a share, so that
    plugins that hang on one do not hold up the others. A plugin that was killed because it hung will probably hang
    again, so all teardowns with such a plugin share a part of the slots. `plugins` is how many plugins the runtime
    executes at once.
    """

    def __init__(self, plugins: int) -> None:
        limit = max(_LEAST, plugins)
        self._slots: NetworkSlots[EndpointId] = NetworkSlots(limit, for_preferred=limit)
        self._for_hung = asyncio.Semaphore(max(1, plugins // 2))

    def prefer(self, teardowns: Iterable[Pending]) -> None:
        """Let the next attempt of these go first, except those with a plugin that hung."""
        preferred = [pending for pending in teardowns if not pending.has_hung]
        for pending in preferred:
            pending.expedite(Urgency.FIRST)
        self._slots.prefer(pending.key for pending in preferred)

    @asynccontextmanager
    async def take(self, pending: Pending, network: str) -> AsyncIterator[None]:
        """Run the body, a teardown on a CNI network, in a slot."""
        try:
            async with (
                self._for_hung if pending.has_hung else nullcontext(),
                self._slots.take(pending.key, network, preferred=pending.urgency is Urgency.FIRST),
            ):
                yield
        finally:
            pending.urgency = Urgency.NORMAL
