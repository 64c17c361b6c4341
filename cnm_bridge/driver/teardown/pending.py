# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The pending teardowns: one record for each endpoint, with all that this run of the daemon knows of its teardown."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cni_bridge_state import EndpointId, EndpointRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a teardown has not completed.

    Attributes:
        error: The error of the last attempt.
        since: When the first attempt in this run of the daemon failed, by `time.monotonic`.
    """

    error: str
    since: float


@dataclass(eq=False, slots=True, kw_only=True)
class Pending:
    """One pending teardown, from its request until it completes.

    Attributes:
        endpoint_id: The endpoint.
        attempts: Number of attempts that have failed.
        failure: Why, None before an attempt has failed.
        has_begun: Whether its plugins may have run: it was found that no container uses the endpoint.
        is_running: Whether an attempt is running, under the endpoint's lock.
        is_done: Whether it has completed.
        is_requested: Whether Docker requested it from this run of the daemon, and no attempt has ended since.
        is_deferred: Whether the next attempt waits until Docker is quiet.
        is_preferred: Whether the next or running attempt goes first, because a call waits for it.
        is_undo: Whether it undoes a refused attempt whose call is still waiting for it.
        has_hung: Whether a plugin was killed because it hung, and none has answered since.
        is_unstored: Whether DELETING could not be stored.
        deleted: The indexes of the plugins whose DEL has completed, also if that could not be stored.
        kept: The record that is stored again after the undo of an attempt, None to remove the endpoint.
        is_restoring: Whether `kept` is being stored.
        wake: Set to end the wait for a quiet Docker, or the pause after a failure.
    """

    endpoint_id: EndpointId
    attempts: int = 0
    failure: Failure | None = None
    has_begun: bool = False
    is_running: bool = False
    is_done: bool = False
    is_requested: bool = False
    is_deferred: bool = False
    is_preferred: bool = False
    is_undo: bool = False
    has_hung: bool = False
    is_unstored: bool = False
    deleted: frozenset[int] = frozenset()
    kept: EndpointRecord | None = None
    is_restoring: bool = False
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_tried(self) -> bool:
        """Whether an attempt has ended."""
        return self.is_done or self.attempts > 0

    @property
    def is_leaving(self) -> bool:
        """Whether an attempt is running, or the first one is about to begin."""
        return not self.is_tried or self.is_running

    @property
    def error(self) -> str | None:
        """The error of the last attempt, None before one has failed."""
        return None if self.failure is None else self.failure.error


class PendingTeardowns:
    """The pending teardowns, and a notification of each change.

    Attributes:
        ended: CNI network → how many attempts have ended, without those to undo a refused attempt.
    """

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self._of: dict[EndpointId, Pending] = {}
        self._changed = asyncio.Event()

    @property
    def all(self) -> Mapping[EndpointId, Pending]:
        """The pending teardowns, in the order in which they were added; a live view."""
        return MappingProxyType(self._of)

    @property
    def begun(self) -> frozenset[EndpointId]:
        """The endpoints whose plugins may have run DEL."""
        return frozenset(endpoint_id for endpoint_id, pending in self._of.items() if pending.has_begun)

    def find(self, endpoints: Iterable[EndpointId]) -> tuple[Pending, ...]:
        """Return the pending teardowns of these endpoints."""
        return tuple(self._of[endpoint_id] for endpoint_id in endpoints if endpoint_id in self._of)

    def get_or_add(self, endpoint_id: EndpointId) -> Pending:
        """Return the pending teardown of an endpoint, a new one if there is none."""
        return self._of.setdefault(endpoint_id, Pending(endpoint_id=endpoint_id))

    def remove(self, pending: Pending) -> None:
        """Remove a teardown that has completed."""
        pending.is_done = True
        del self._of[pending.endpoint_id]

    def announce(self) -> None:
        """Have all waiters check their condition again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is called now and after each announcement."""
        while not is_true():
            await self._changed.wait()

    async def wait_until_each(self, teardowns: Iterable[Pending], is_true: Callable[[Pending], bool]) -> None:
        """Wait until `is_true` has returned True for each of these, once."""
        waiting = list(teardowns)

        def are_all() -> bool:
            while waiting and is_true(waiting[-1]):
                waiting.pop()
            return not waiting

        await self.wait_until(are_all)
