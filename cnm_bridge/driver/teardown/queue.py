# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The queue of teardowns: who requests one, who waits for one, and the attempts. Docker has forgotten these endpoints.

Each is attempted when Docker is quiet or at once, in a slot and under the endpoint's lock.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.pending import Pending, PendingTeardowns, TeardownSlots, Undo, Urgency
from cnm_bridge.driver.teardown.teardown import Teardown
from cnm_bridge.system.log import traced
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_LOGGED = 5
"""Number of endpoints that one log line names, of those that a call waits for."""
UNDO_LIMIT_S: Final = 2.0
"""How long a call that has failed waits for its undo. Usually that takes some milliseconds."""
_QUIET_S: Final = 0.1
"""How long Docker must have been quiet. Its calls for one starting container are closer together than this."""
_LONGEST_DEFERRAL_S = 2.0
"""A host that is never quiet must still release addresses."""
_ATTEMPTED: Final = frozenset({Phase.PENDING, Phase.JOINING})
"""The phases in which plugins may run ADD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownQueue:
    """Adds teardowns, attempts each until it completes, and waits for them.

    A teardown that Docker requested is deferred until Docker makes no other calls, unless a call needs it: when many
    containers start and end at once, the plugins of the ended ones would compete for the processors with those of the
    starting ones. All others begin at once.
    """

    store: Store
    teardown: Teardown
    pending: PendingTeardowns
    locks: KeyedLocks[EndpointId]
    slots: TeardownSlots
    quiet_s: Callable[[EndpointId], float]
    """Returns the seconds since Docker's last call about any other endpoint."""

    async def run(self) -> None:
        """Run the pending teardowns until cancelled. Then it can be called again, and continues with all of them."""
        await self.pending.run(self._attempt)

    async def _attempt(self, pending: Pending) -> bool:
        with traced(endpoint_id=pending.key):
            await self._wait_quiet(pending)
            await self._attempt_in_slot(pending)
        return pending.is_done

    async def _wait_quiet(self, pending: Pending) -> None:
        """Wait until Docker is quiet or a call needs this teardown, unless it begins at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_DEFERRAL_S):
                while pending.urgency is Urgency.DEFERRED and (rest_s := _QUIET_S - self.quiet_s(pending.key)) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(rest_s):
                            await pending.wake.wait()
                            break
        pending.urgency = max(pending.urgency, Urgency.NORMAL)
        pending.wake.clear()

    async def _attempt_in_slot(self, pending: Pending) -> None:
        """Make one attempt, under the endpoint's lock; remove the teardown if it has completed."""
        before = self.store.find_endpoint(pending.key)
        network = "" if before is None else before.attachment.network
        async with self.slots.take(pending, network), self.locks.hold(pending.key):
            record = self.store.find_endpoint(pending.key)
            is_undo = pending.undo is not None
            if record is None or await self._try(record, pending):
                self.pending.remove(pending)
            self.pending.ended[network] += not is_undo

    async def _try(self, record: EndpointRecord, pending: Pending) -> bool:
        """Return whether a teardown has completed; log and keep its error otherwise."""
        if pending.is_unstored:
            record = replace(record, phase=Phase.DELETING)
        pending.is_running = True
        try:
            await self.teardown(record)
        except (CniError, KernelError, StateError) as exc:
            log.warning("endpoint.teardown_pending", error=str(exc))
            pending.fail(str(exc))
            if isinstance(exc, PluginTimeout) and exc.started:
                pending.has_hung = True
            elif isinstance(exc, PluginFailed):  # it answers again, or the one that hung has completed
                pending.has_hung = False
            return False
        finally:
            pending.is_running = False
        return True

    @property
    def all(self) -> Mapping[EndpointId, Pending]:
        """The pending teardowns; a live view."""
        return self.pending.all

    @property
    def untried(self) -> frozenset[EndpointId]:
        """The endpoints whose teardown has not been tried in the background yet."""
        return self._ids(lambda pending: not pending.is_tried)

    @property
    def leaving(self) -> frozenset[EndpointId]:
        """The endpoints whose teardown has not been tried yet or is running."""
        return self._ids(lambda pending: pending.is_leaving)

    def leaving_network(self, network: str) -> frozenset[EndpointId]:
        """Return those of `leaving` that are on a CNI network, without attempts that are undone for their own call."""
        found = map(self.store.find_endpoint, self._ids(lambda pending: pending.is_leaving and pending.undo is None))
        return frozenset(record.id for record in found if record is not None and record.attachment.network == network)

    @property
    def requested_ids(self) -> frozenset[EndpointId]:
        """The untried ones that Docker requested from this run of the daemon."""
        return self._ids(lambda pending: pending.is_requested and not pending.is_tried)

    def is_pending(self, endpoint_id: EndpointId) -> bool:
        """Return whether the teardown of an endpoint has not completed. On a full disk, its record may not show it."""
        return endpoint_id in self.pending.all

    def has_hung(self, endpoint_id: EndpointId) -> bool:
        """Return whether a plugin was killed because it hung, and none has answered since."""
        return any(pending.has_hung for pending in self.pending.find([endpoint_id]))

    def find_error(self, endpoint_id: EndpointId) -> str | None:
        """Return the error of the last attempt for an endpoint, None if none has failed."""
        return next((pending.error for pending in self.pending.find([endpoint_id])), None)

    def add(self, endpoint_id: EndpointId) -> None:
        """Add the teardown of an endpoint, to begin at once. One that has failed is tried again at once."""
        self.pending.begin(endpoint_id)

    async def request(self, endpoint_id: EndpointId) -> None:
        """Store that Docker deletes an endpoint, and add its teardown. An unknown endpoint is ignored.

        The plugins run later, in the background. If an earlier attempt has failed, another one begins now. After a
        `StateError`, e.g. because the disk is full, the endpoint is torn down anyway, at once.
        """
        # A record that is being kept becomes JOINING again: the lock is free when it is stored.
        is_kept = not self._keep_nothing(endpoint_id)
        if not is_kept and self.is_pending(endpoint_id) and self._is_being_deleted(endpoint_id):
            self.add(endpoint_id)
            return
        async with self.locks.hold(endpoint_id):
            record = self.store.find_endpoint(endpoint_id)
            if record is None:
                return
            pending = await self._begin(record)
            pending.is_requested = True
            if pending.urgency is Urgency.NORMAL:  # no call waits for it
                pending.urgency = Urgency.DEFERRED

    async def tear_down(self, record: EndpointRecord) -> None:
        """Tear down, at once, an endpoint that Docker will never delete.

        Nothing happens if its record has changed since the caller read it.
        """
        async with self.locks.hold(record.id):
            if self.store.find_endpoint(record.id) == record:
                await self._begin_logged(record)

    async def wait_tried(self, endpoints: Iterable[EndpointId] | None = None) -> None:
        """Wait until all pending teardowns, or those of these endpoints, have been tried once."""
        teardowns = tuple(self.pending.all.values()) if endpoints is None else self.pending.find(endpoints)
        wanted = [pending for pending in teardowns if not pending.is_tried]
        if endpoints is None:
            for pending in wanted:
                pending.expedite()
        else:
            self._prefer(wanted)
            _log_wait(wanted)
        await self.pending.wait_until_each(wanted, lambda pending: pending.is_tried)

    async def wait_left(self, endpoints: Iterable[EndpointId]) -> None:
        """Wait until none of these endpoints is `leaving`: each is gone, or its teardown has failed.

        They are torn down at once, and before all others.
        """
        leaving = self._find_leaving(endpoints)
        self._prefer(leaving)
        _log_wait(leaving)
        await self.pending.wait_attempted(leaving)

    async def begin_undo(self, endpoint_id: EndpointId, *, keep: EndpointRecord | None = None) -> bool:
        """Begin to undo a failed attempt to create or join an endpoint; return False if no plugin has run.

        The caller holds the endpoint's lock, and has held it since before the attempt. It calls `wait_undone` next.
        `keep` is the record from before the attempt, which is then stored as JOINING; None to tear everything down.
        """
        record = self.store.find_endpoint(endpoint_id)
        if record is None or record.phase not in _ATTEMPTED:
            return False
        pending = await self._begin_logged(record)
        pending.undo = Undo(keep)  # after the last await: a cancelled call keeps nothing
        return True

    async def wait_undone(self, endpoint_id: EndpointId, limit_s: float = 0.0) -> bool:
        """Wait until an endpoint is undone, before all other teardowns; return whether it is.

        Waits for `UNDO_LIMIT_S`, or longer. After that, or if it fails, nothing is kept, and the endpoint is torn down
        completely in the background.
        """
        try:
            async with asyncio.timeout(max(UNDO_LIMIT_S, limit_s)):
                await self._wait_tried_first(endpoint_id)
        except TimeoutError:
            pass
        finally:
            is_being_kept = not self._keep_nothing(endpoint_id)
        if is_being_kept:
            await self._wait_tried_first(endpoint_id)  # at most one record is still being stored
        return not self.is_pending(endpoint_id)

    async def _wait_tried_first(self, endpoint_id: EndpointId) -> None:
        leaving = self._find_leaving([endpoint_id])
        self._prefer(leaving)
        await self.pending.wait_attempted(leaving)

    async def retry(self, endpoints: Iterable[EndpointId], *, go_first: bool = False) -> None:
        """Run the failed teardowns of these endpoints again now, and wait until each has been tried.

        With `go_first` they run before all others, except those with a plugin that hung.
        """
        failed = [pending for pending in self.pending.find(endpoints) if pending.attempts]
        if go_first:
            self.slots.prefer(failed)
        for pending in failed:
            pending.wake.set()
        await self.pending.wait_attempted(failed)

    async def _begin(self, record: EndpointRecord) -> Pending:
        """Store that an endpoint is being deleted, and add its teardown, of everything. The caller holds its lock."""
        self._keep_nothing(record.id)
        is_unstored = False
        try:
            await self.store.put_endpoint(replace(record, phase=Phase.DELETING))
        except StateError:
            is_unstored = True
            raise
        finally:  # a full disk must not keep the address and the link
            pending = self.pending.begin(record.id)
            pending.is_unstored |= is_unstored
        return pending

    async def _begin_logged(self, record: EndpointRecord) -> Pending:
        """Do as `_begin`, and log an error."""
        try:
            return await self._begin(record)
        except StateError as exc:
            log.warning("endpoint.teardown_pending", endpoint_id=record.id, error=str(exc))
        return self.pending.add(record.id)

    def _keep_nothing(self, endpoint_id: EndpointId) -> bool:
        """Have the teardown of an endpoint undo everything, also if it has begun.

        Returns False if it is too late: what is kept is being stored, under the endpoint's lock.
        """
        for pending in self.pending.find([endpoint_id]):
            if pending.undo is not None and pending.undo.is_restoring:
                return False
            pending.undo = None
        return True

    def _prefer(self, leaving: Iterable[Pending]) -> None:
        """Tear these endpoints down at once and before all others, because a call waits for them."""
        teardowns = tuple(leaving)
        for pending in teardowns:
            pending.expedite()
        self.slots.prefer(teardowns)

    def _find_leaving(self, endpoints: Iterable[EndpointId]) -> tuple[Pending, ...]:
        return tuple(pending for pending in self.pending.find(endpoints) if pending.is_leaving)

    def _ids(self, is_wanted: Callable[[Pending], bool]) -> frozenset[EndpointId]:
        return frozenset(pending.key for pending in self.pending.all.values() if is_wanted(pending))

    def _is_being_deleted(self, endpoint_id: EndpointId) -> bool:
        record = self.store.find_endpoint(endpoint_id)
        return record is not None and record.phase is Phase.DELETING


def _log_wait(leaving: Collection[Pending]) -> None:
    if leaving:
        ids = sorted(pending.key for pending in leaving)
        log.info("endpoint.waits", count=len(ids), leaving=ids[:_LOGGED])
