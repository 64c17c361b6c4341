# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs pending teardowns, and repeats each until it completes. Docker has already forgotten these endpoints."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.checked_teardown import CheckedTeardown
from cnm_bridge.driver.teardown.pending import Failure, PendingTeardown
from cnm_bridge.driver.teardown.running import RunningTeardowns
from cnm_bridge.driver.teardown.slots import TeardownSlots
from cnm_bridge.driver.teardown.teardown import Teardown
from cnm_bridge.system.scheduling.idle_gate import IdleGate
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.system.scheduling.retry_queue import RetryQueue
from cnm_bridge.system.trace import traced

__all__ = ["TeardownQueue"]

log = structlog.get_logger()

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_LOGGED = 5
"""Number of endpoints that one log line names, of those that a call waits for."""
UNDO_LIMIT_S: Final = 2.0
"""How long a call that has failed waits for its undo. Usually that takes some milliseconds."""
_ATTEMPTED: Final = frozenset({Phase.PENDING, Phase.JOINING})
"""The phases in which plugins may run ADD."""


class TeardownQueue:
    """Runs pending teardowns, and repeats each until it completes.

    A teardown that Docker requested waits until Docker makes no other calls, unless a call needs it. All others begin
    at once.

    Args:
        store: The records.
        teardown: Undoes all that was done for an endpoint.
        checked_teardown: The same for attempts in the background, with the checks that these need.
        locks: The locks of endpoints.
        owners: Reports when a DEL can run that was deferred because a new endpoint claimed the address.
        slots: Limits concurrent teardowns.
        quiet_s: Returns the seconds since Docker's last call about any other endpoint.
    """

    def __init__(
        self,
        *,
        store: Store,
        teardown: Teardown,
        checked_teardown: CheckedTeardown,
        locks: KeyedLocks[EndpointId],
        owners: AddressOwners,
        slots: TeardownSlots,
        quiet_s: Callable[[EndpointId], float],
    ) -> None:
        self._store = store
        self._teardown = teardown
        self._checked_teardown = checked_teardown
        self._locks = locks
        self._slots = slots
        self._idle_gate: IdleGate[EndpointId] = IdleGate(quiet_s)
        self._attempts = RunningTeardowns()
        self._failures: dict[EndpointId, Failure] = {}
        self._unstored: set[EndpointId] = set()  # in DELETING, which could not be stored
        self._retries: RetryQueue[EndpointId] = RetryQueue(
            self._attempt,
            first_pause_s=_FIRST_PAUSE_S,
            longest_pause_s=_LONGEST_PAUSE_S,
            on_attempt=self._attempts.announce,
        )
        owners.when_released(self.add)

    @property
    def all(self) -> Mapping[EndpointId, PendingTeardown]:
        """The pending teardowns."""
        return {
            endpoint_id: PendingTeardown(attempts=attempts, failure=self._failures.get(endpoint_id))
            for endpoint_id, attempts in self._retries.attempts.items()
        }

    @property
    def untried(self) -> frozenset[EndpointId]:
        """The endpoints whose teardown has not been tried in the background yet."""
        return frozenset(endpoint_id for endpoint_id, attempts in self._retries.attempts.items() if not attempts)

    @property
    def leaving(self) -> frozenset[EndpointId]:
        """The endpoints whose teardown has not been tried yet or is running."""
        return self.untried | self._attempts.running

    @property
    def requested_ids(self) -> frozenset[EndpointId]:
        """The untried ones that Docker requested from this run of the daemon."""
        return frozenset(endpoint_id for endpoint_id in self.untried if endpoint_id in self._idle_gate)

    def is_pending(self, endpoint_id: EndpointId) -> bool:
        """Return whether the teardown of an endpoint has not completed. On a full disk, its record may not show it."""
        return self._retries.is_under_way(endpoint_id)

    def has_hung(self, endpoint_id: EndpointId) -> bool:
        """Return whether a plugin was killed because it hung, and none has answered since."""
        return self._slots.has_hung(endpoint_id)

    def find_error(self, endpoint_id: EndpointId) -> str | None:
        """Return the error of the last attempt for an endpoint, None if none has failed."""
        failure = self._failures.get(endpoint_id)
        return None if failure is None else failure.error

    def add(self, endpoint_id: EndpointId) -> None:
        """Add the teardown of an endpoint, to begin at once."""
        self._retries.add(endpoint_id)

    def add_later(self, endpoint_id: EndpointId) -> None:
        """Add one of very many teardowns. It begins later, unless a call waits for it."""
        self._retries.add_later(endpoint_id)

    async def request(self, endpoint_id: EndpointId) -> None:
        """Store that Docker deletes an endpoint, and add its teardown. An unknown endpoint is ignored.

        The plugins run later, in the background. If an earlier attempt has failed, another one begins now.

        Raises:
            StateError: The request cannot be stored, e.g. because the disk is full. The endpoint is torn down anyway,
                at once.
        """
        # A record that is being kept becomes JOINING again: the lock is free when it is stored.
        is_kept = not self._teardown.keep_nothing(endpoint_id)
        if not is_kept and self.is_pending(endpoint_id) and self._is_being_deleted(endpoint_id):
            self.add(endpoint_id)
            return
        async with self._locks.hold(endpoint_id):
            record = self._store.find_endpoint(endpoint_id)
            if record is None:
                return
            await self._begin(record)
            self._idle_gate.add(endpoint_id)

    async def abandon(self, record: EndpointRecord) -> None:
        """Tear down, at once, an endpoint that Docker will never delete.

        Nothing happens if its record has changed since the caller read it.
        """
        async with self._locks.hold(record.id):
            if self._store.find_endpoint(record.id) == record:
                await self._begin_logged(record)

    async def wait_tried(self, endpoints: Iterable[EndpointId] | None = None) -> None:
        """Wait until all pending teardowns, or those of these endpoints, have been tried once."""
        if endpoints is None:
            wanted = self.untried
            self._idle_gate.expedite(wanted)
        else:
            wanted = self.untried.intersection(endpoints)
            self._prefer(wanted)
            self._log_wait(wanted)
        await self._retries.wait_tried(wanted)

    async def wait_left(self, endpoints: Iterable[EndpointId], *, go_first: bool = True) -> None:
        """Wait until none of these endpoints is `leaving`: each is gone, or its teardown has failed.

        They are torn down at once, and with `go_first` before all others.
        """
        wanted = frozenset(endpoints)
        if go_first:
            self._prefer(wanted)
        else:
            self._expedite(wanted)
        self._log_wait(wanted)
        await self._attempts.wait_until(lambda: not any(map(self._is_leaving, wanted)))

    async def wait_any_left(self, endpoints: Iterable[EndpointId]) -> None:
        """Wait until at least one of these endpoints is not `leaving`: it is gone, or its teardown has failed."""
        wanted = frozenset(endpoints)
        self._prefer(wanted)
        if all(map(self._is_leaving, wanted)):
            self._log_wait(wanted)
        await self._attempts.wait_until(lambda: not all(map(self._is_leaving, wanted)))

    async def begin_undo(self, endpoint_id: EndpointId, *, keep: EndpointRecord | None = None) -> bool:
        """Begin to undo a failed attempt to create or join an endpoint; return False if no plugin has run.

        The caller holds the endpoint's lock, and has held it since before the attempt. It calls `wait_undone` next.

        Args:
            endpoint_id: The endpoint.
            keep: What stays: the record from before the attempt, which is then stored as JOINING. None to tear
                everything down.
        """
        record = self._store.find_endpoint(endpoint_id)
        if record is None or record.phase not in _ATTEMPTED:
            return False
        await self._begin_logged(record)
        if keep is not None:  # after the last await: a cancelled call keeps nothing
            self._teardown.keep(keep)
        return True

    async def wait_undone(
        self, endpoint_id: EndpointId, extend_s: Callable[[EndpointId], Awaitable[float]] | None = None
    ) -> bool:
        """Wait until an endpoint is undone, before all other teardowns; return whether it is.

        Waits for `UNDO_LIMIT_S`, and then for the seconds that `extend_s` returns. After that, or if it fails, nothing
        is kept, and the endpoint is torn down completely in the background.
        """
        try:
            if not await self._is_undone_within(UNDO_LIMIT_S, endpoint_id) and extend_s is not None:
                await self._is_undone_within(await extend_s(endpoint_id), endpoint_id)
        finally:
            is_being_kept = not self._teardown.keep_nothing(endpoint_id)
        if is_being_kept:
            await self._wait_tried_first(endpoint_id)  # at most one record is still being stored
        return not self.is_pending(endpoint_id)

    async def _is_undone_within(self, limit_s: float, endpoint_id: EndpointId) -> bool:
        """Wait until an undo has been tried; return whether it has been within `limit_s`."""
        try:
            async with asyncio.timeout(limit_s):
                await self._wait_tried_first(endpoint_id)
        except TimeoutError:
            return False
        return True

    async def _wait_tried_first(self, endpoint_id: EndpointId) -> None:
        self._prefer([endpoint_id])
        await self._attempts.wait_until(lambda: not self._is_leaving(endpoint_id))

    async def retry(self, endpoints: Iterable[EndpointId], *, go_first: bool = False) -> None:
        """Run the failed teardowns of these endpoints again now, and wait until each has been tried.

        With `go_first` they run before all others, except those with a plugin that hung.
        """
        before = {endpoint_id: self._retries.attempts_of(endpoint_id) for endpoint_id in endpoints}
        waiting = {endpoint_id: attempts for endpoint_id, attempts in before.items() if attempts}
        if go_first:
            self._slots.prefer(waiting)
        for endpoint_id in waiting:
            self.add(endpoint_id)

        def is_tried() -> bool:
            while waiting:
                endpoint_id, attempts = next(iter(waiting.items()))
                if self._retries.attempts_of(endpoint_id) == attempts:
                    return False
                del waiting[endpoint_id]
            return True

        await self._attempts.wait_until(is_tried)

    async def run(self) -> None:
        """Run the pending teardowns until cancelled."""
        await self._retries.run()

    async def _begin(self, record: EndpointRecord) -> None:
        """Store that an endpoint is being deleted, and add its teardown, of everything. The caller holds its lock."""
        self._teardown.keep_nothing(record.id)
        try:
            await self._store.put_endpoint(replace(record, phase=Phase.DELETING))
        except StateError:
            self._unstored.add(record.id)
            raise
        finally:  # a full disk must not keep the address and the link
            self.add(record.id)

    async def _begin_logged(self, record: EndpointRecord) -> None:
        """Do as `_begin`, and log an error."""
        try:
            await self._begin(record)
        except StateError as exc:
            log.warning("endpoint.teardown_pending", endpoint_id=record.id, error=str(exc))

    def _prefer(self, endpoints: Iterable[EndpointId]) -> None:
        """Tear these endpoints down at once and before all others, because a call waits for them."""
        self._slots.prefer(self._expedite(endpoints))

    def _expedite(self, endpoints: Iterable[EndpointId]) -> Sequence[EndpointId]:
        """Tear these endpoints down at once; return those whose attempt is running or about to begin."""
        due = [endpoint_id for endpoint_id in endpoints if self._is_due(endpoint_id)]
        self._idle_gate.expedite(due)
        self._retries.begin(due)
        return due

    def _is_due(self, endpoint_id: EndpointId) -> bool:
        """Return whether an attempt in the background is running, or the first one is about to begin."""
        return self._retries.is_under_way(endpoint_id) and self._is_leaving(endpoint_id)

    def _log_wait(self, endpoints: Iterable[EndpointId]) -> None:
        """Log that a call waits for those of these endpoints that are leaving, if there are any."""
        leaving = sorted(filter(self._is_leaving, endpoints))
        if leaving:
            log.info("endpoint.waits", count=len(leaving), leaving=leaving[:_LOGGED])

    def _is_leaving(self, endpoint_id: EndpointId) -> bool:
        return endpoint_id in self._attempts.running or self._retries.is_untried(endpoint_id)

    def _is_being_deleted(self, endpoint_id: EndpointId) -> bool:
        record = self._store.find_endpoint(endpoint_id)
        return record is not None and record.phase is Phase.DELETING

    async def _attempt(self, endpoint_id: EndpointId) -> bool:
        with traced(endpoint_id=endpoint_id):
            try:
                await self._idle_gate.wait(endpoint_id)
                return await self._attempt_in_slot(endpoint_id)
            finally:
                self._idle_gate.forget(endpoint_id)

    async def _attempt_in_slot(self, endpoint_id: EndpointId) -> bool:
        before = self._store.find_endpoint(endpoint_id)
        network = "" if before is None else before.attachment.network
        async with self._slots.teardown(endpoint_id, network), self._locks.hold(endpoint_id):
            record = self._store.find_endpoint(endpoint_id)
            if record is not None:
                return await self._try(record)
            self._forget_failure(endpoint_id)
            return True

    async def _try(self, record: EndpointRecord) -> bool:
        """Make one attempt, under the endpoint's lock; return whether it has completed."""
        if record.id in self._unstored:
            record = replace(record, phase=Phase.DELETING)
        try:
            with self._attempts.attempt(record.id):
                await self._checked_teardown(record)
        except (CniError, KernelError, StateError) as exc:
            log.warning("endpoint.teardown_pending", error=str(exc))
            self._note_failure(record.id, exc)
            return False
        self._forget_failure(record.id)
        return True

    def _note_failure(self, endpoint_id: EndpointId, exc: Exception) -> None:
        earlier = self._failures.get(endpoint_id)
        self._failures[endpoint_id] = Failure(error=str(exc), since=earlier.since if earlier else time.monotonic())
        if isinstance(exc, PluginTimeout) and exc.started:
            self._slots.note_hung(endpoint_id)
        elif isinstance(exc, PluginFailed):  # it answers again, or the one that hung has completed
            self._slots.forget_hung(endpoint_id)

    def _forget_failure(self, endpoint_id: EndpointId) -> None:
        self._failures.pop(endpoint_id, None)
        self._unstored.discard(endpoint_id)
        self._slots.forget_hung(endpoint_id)
