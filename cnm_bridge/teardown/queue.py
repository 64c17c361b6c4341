# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Pending teardowns: requested, or begun, and not completed. Docker has forgotten such an endpoint; we have not."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from cni_invoker import CniError, PluginTimeout
from cnm_bridge.kernel import KernelError
from cnm_bridge.scheduling.idle_gate import IdleGate
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.scheduling.retry_queue import RetryQueue
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.resumption import ResumedTeardown
from cnm_bridge.teardown.running import RunningTeardowns
from cnm_bridge.teardown.slots import TeardownSlots
from cnm_bridge.teardown.teardown import Teardown
from state import EndpointId, EndpointRecord, Phase, StateError, Store

__all__ = ["PendingTeardown", "TeardownQueue"]

log = structlog.get_logger()

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_LOGGED = 5
"""How many endpoints a line of the log names, of those that a call waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTeardown:
    """A teardown that has not completed.

    Attributes:
        attempts: How often it has been tried in the background.
        error: Why the last attempt failed, None before the first has.
    """

    attempts: int
    error: str | None


class TeardownQueue:
    """Repeats each pending teardown until it has completed.

    A teardown that Docker requested yields to Docker's other calls, unless a call waits for it. All others begin at
    once.

    Args:
        store: The records.
        teardown: The one undo.
        resumed_teardown: The same, for an attempt in the background.
        locks: The locks of endpoints.
        owners: Tells when a DEL that was put off, because a new endpoint claimed the address, can run.
        slots: Limits concurrent teardowns.
        quiet_s: Tells for how many seconds Docker has not wanted anything, but for one endpoint.
    """

    def __init__(
        self,
        *,
        store: Store,
        teardown: Teardown,
        resumed_teardown: ResumedTeardown,
        locks: KeyedLocks[EndpointId],
        owners: AddressOwners,
        slots: TeardownSlots,
        quiet_s: Callable[[EndpointId], float],
    ) -> None:
        self._store = store
        self._teardown = teardown
        self._resumed_teardown = resumed_teardown
        self._locks = locks
        self._slots = slots
        self._idle_gate: IdleGate[EndpointId] = IdleGate(quiet_s)
        self._attempts = RunningTeardowns()
        self._errors: dict[EndpointId, str] = {}
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
            endpoint_id: PendingTeardown(attempts=attempts, error=self._errors.get(endpoint_id))
            for endpoint_id, attempts in self._retries.attempts.items()
        }

    @property
    def untried(self) -> frozenset[EndpointId]:
        """Those that have not been tried in the background yet."""
        return frozenset(endpoint_id for endpoint_id, attempts in self._retries.attempts.items() if not attempts)

    @property
    def leaving(self) -> frozenset[EndpointId]:
        """Those that have not been tried yet, and those that are being torn down now, for the first time or again."""
        return self.untried | self._attempts.running

    @property
    def requested_ids(self) -> frozenset[EndpointId]:
        """Those of them that Docker requested in this run of the daemon, whose calls did not wait for them."""
        return frozenset(endpoint_id for endpoint_id in self.untried if endpoint_id in self._idle_gate)

    def add(self, endpoint_id: EndpointId) -> None:
        """Add the teardown of an endpoint; returns at once."""
        self._retries.want(endpoint_id)

    def add_later(self, endpoint_id: EndpointId) -> None:
        """Add one of very many teardowns, none of which is urgent unless a call waits for it."""
        self._retries.want_later(endpoint_id)

    async def request(self, endpoint_id: EndpointId) -> None:
        """Add the teardown of an endpoint that Docker deletes; one that is unknown is gone already.

        When this returns, the request is on disk. The call does not wait for the plugins; if they have failed, they run
        again now.

        Raises:
            StateError: It is not on disk, e.g. because there is no space. The endpoint is torn down all the same, at
                once.
        """
        if endpoint_id in self._retries.attempts and self._is_being_deleted(endpoint_id):
            self.add(endpoint_id)
            return
        async with self._locks.hold(endpoint_id):
            record = self._store.find_endpoint(endpoint_id)
            if record is None:
                return
            await self._begin(record)
            self._idle_gate.add(endpoint_id)

    async def abandon(self, record: EndpointRecord) -> None:
        """Do the same with an endpoint that Docker will not delete, unless its record has changed since that was found.

        It is torn down at once.
        """
        async with self._locks.hold(record.id):
            if self._store.find_endpoint(record.id) == record:
                try:
                    await self._begin(record)
                except StateError as exc:
                    log.warning("endpoint.teardown_pending", endpoint_id=record.id, error=str(exc))

    async def wait_tried(self, endpoints: Iterable[EndpointId] | None = None) -> None:
        """Wait until each pending teardown, or each of some endpoints, has been tried once."""
        if endpoints is None:
            wanted = self.untried
            self._idle_gate.hurry(wanted)
        else:
            wanted = self.untried.intersection(endpoints)
            self._prefer(wanted)
            self._log_wait(wanted)
        await self._retries.wait_tried(wanted)

    async def wait_left(self, endpoints: Iterable[EndpointId], *, go_first: bool = True) -> None:
        """Wait until some endpoints are gone, or not `leaving` any more: then their teardown has failed.

        They are torn down at once, and, with `go_first`, before all others.
        """
        wanted = frozenset(endpoints)
        if go_first:
            self._prefer(wanted)
        else:
            self._hurry(wanted)
        self._log_wait(wanted)
        await self._attempts.wait_until(lambda: not any(map(self._is_leaving, wanted)))

    async def wait_any_left(self, endpoints: Iterable[EndpointId]) -> None:
        """Wait until at least one of some endpoints is gone, or not `leaving` any more."""
        wanted = frozenset(endpoints)
        self._prefer(wanted)
        if all(map(self._is_leaving, wanted)):
            self._log_wait(wanted)
        await self._attempts.wait_until(lambda: not all(map(self._is_leaving, wanted)))

    async def undo(self, record: EndpointRecord) -> None:
        """Tear an endpoint down now, under its lock, which the caller holds; what fails is repeated in the background.

        Raises:
            CniError, KernelError, StateError: As the teardown.
        """
        try:
            with self._attempts.attempt(record.id):
                await self._teardown(record)
        except Exception as exc:
            self._has_failed(record.id, exc)
            self.add(record.id)
            raise

    async def run(self) -> None:
        """Tear down for as long as it is not cancelled."""
        await self._retries.run()

    async def _begin(self, record: EndpointRecord) -> None:
        """Store that an endpoint is being deleted, and add its teardown. The caller holds its lock."""
        try:
            await self._store.put_endpoint(replace(record, phase=Phase.DELETING))
        finally:  # a full disk must not keep the address and the link
            self.add(record.id)

    def _prefer(self, endpoints: Iterable[EndpointId]) -> None:
        """Tear some endpoints down at once and before all others, because a call needs what they have."""
        self._slots.prefer(self._hurry(endpoints))

    def _hurry(self, endpoints: Iterable[EndpointId]) -> Sequence[EndpointId]:
        """Have some endpoints torn down at once; return those of them for which an attempt runs or comes."""
        due = [endpoint_id for endpoint_id in endpoints if self._is_due(endpoint_id)]
        self._idle_gate.hurry(due)
        self._retries.begin(due)
        return due

    def _is_due(self, endpoint_id: EndpointId) -> bool:
        """Return whether an attempt in the background runs, or is the first and comes at once."""
        return self._retries.is_under_way(endpoint_id) and self._is_leaving(endpoint_id)

    def _log_wait(self, endpoints: Iterable[EndpointId]) -> None:
        """Log that a call waits for those of some endpoints that are leaving, if any is."""
        leaving = sorted(filter(self._is_leaving, endpoints))
        if leaving:
            log.info("endpoint.waits", count=len(leaving), leaving=leaving[:_LOGGED])

    def _is_leaving(self, endpoint_id: EndpointId) -> bool:
        return endpoint_id in self._attempts.running or self._retries.is_untried(endpoint_id)

    def _is_being_deleted(self, endpoint_id: EndpointId) -> bool:
        record = self._store.find_endpoint(endpoint_id)
        return record is not None and record.phase is Phase.DELETING

    async def _attempt(self, endpoint_id: EndpointId) -> bool:
        with structlog.contextvars.bound_contextvars(endpoint_id=endpoint_id):
            try:
                await self._idle_gate.wait(endpoint_id)
                return await self._attempt_in_turn(endpoint_id)
            finally:
                self._idle_gate.forget(endpoint_id)

    async def _attempt_in_turn(self, endpoint_id: EndpointId) -> bool:
        async with self._slots.teardown(endpoint_id), self._locks.hold(endpoint_id):
            record = self._store.find_endpoint(endpoint_id)
            if record is not None:
                return await self._try(record)
            self._is_done(endpoint_id)
            return True

    async def _try(self, record: EndpointRecord) -> bool:
        """Tear down under the endpoint's lock; return whether that has completed."""
        try:
            with self._attempts.attempt(record.id):
                await self._resumed_teardown(record)
        except (CniError, KernelError, StateError) as exc:
            log.warning("endpoint.teardown_pending", error=str(exc))
            self._has_failed(record.id, exc)
            return False
        self._is_done(record.id)
        return True

    def _has_failed(self, endpoint_id: EndpointId, exc: Exception) -> None:
        self._errors[endpoint_id] = str(exc)
        if isinstance(exc, PluginTimeout) and exc.started:
            self._slots.has_hung(endpoint_id)

    def _is_done(self, endpoint_id: EndpointId) -> None:
        self._errors.pop(endpoint_id, None)
        self._slots.has_not_hung(endpoint_id)
