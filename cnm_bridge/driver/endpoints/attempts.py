# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins of CreateEndpoint and Join in every attach mode, undoes a failure, and repeats a refused attempt.

`driver/teardown/contention.py` decides whether an attempt is repeated, and what it waits for before.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.teardown.contention import Contention
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.system.scheduling import KeyedLocks

Attempt = Callable[[EndpointRecord | None], Awaitable[EndpointRecord]]
"""Makes one attempt, under the endpoint's lock. It receives the record from before the first one, None if there was
none, waits for what is known to be needed, calls `Contention.note_attempt`, and runs the plugins."""


@dataclass(slots=True, eq=False)
class Call:
    """A call under way; `is_stopped` if Docker has deleted its endpoint since it began."""

    endpoint_id: EndpointId
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts to create or join an endpoint."""

    store: Store
    dead: DeadEndpoints
    locks: KeyedLocks[EndpointId]
    _calls: dict[EndpointId, set[Call]] = field(default_factory=dict, init=False)

    def stop(self, endpoint_id: EndpointId) -> None:
        """Let the calls under way for an endpoint make no further attempt, because Docker deletes it.

        An attempt that is running continues. Later calls are not affected.
        """
        for call in self._calls.get(endpoint_id, ()):
            call.is_stopped = True

    @contextmanager
    def under_way(self, endpoint_id: EndpointId) -> Iterator[Call]:
        """Yield a call for an endpoint, which `stop` finds during the block, also before the first attempt."""
        call = Call(endpoint_id)
        calls = self._calls.setdefault(endpoint_id, set())
        calls.add(call)
        try:
            yield call
        finally:
            calls.remove(call)
            if not calls:
                del self._calls[endpoint_id]

    async def make(self, call: Call, contention: Contention, attempt: Attempt) -> EndpointRecord:
        """Make attempts until one succeeds; return its record.

        What was done before the first attempt, such as a reservation, is kept between two attempts. After an error
        nothing is left of the endpoint, if plugins have run. The undo goes on in the background if it takes long or
        fails. An attempt of another call is never undone.

        Raises:
            Exception: That of the last attempt.
            Refused: The same, with an endpoint that may hold what was refused; or Docker has deleted the endpoint
                before the first attempt.
        """
        before: EndpointRecord | None = None
        error: Exception = Refused(f"endpoint {call.endpoint_id} has been deleted")
        while True:
            async with self.locks.hold(call.endpoint_id):
                if call.is_stopped:
                    raise error
                stored = self.store.find_endpoint(call.endpoint_id)
                is_kept = _is_kept(stored, before)
                before = before if is_kept else stored
                try:
                    return await attempt(before)
                except Exception as exc:  # begin to undo it before another call can see what it has left
                    error, refusal = exc, _find_refusal(exc, before)
                    is_changed = is_kept or self.store.find_endpoint(call.endpoint_id) != stored
                    keep = None if refusal is None else before
                    if not is_changed or not await self.dead.teardowns.begin_undo(call.endpoint_id, keep=keep):
                        raise
            limit_s, may_succeed = 0.0, False
            try:
                if refusal is not None:
                    await contention.wait_or_raise(refusal)  # beside the undo
                    limit_s, may_succeed = contention.remaining_s, not call.is_stopped
            except (PluginFailed, Refused) as exc:
                error = exc
            is_undone = await self.dead.teardowns.wait_undone(call.endpoint_id, limit_s)
            if not is_undone or not may_succeed:
                if is_undone:
                    await self._undo_kept(call.endpoint_id, before)
                raise error

    async def _undo_kept(self, endpoint_id: EndpointId, before: EndpointRecord | None) -> None:
        async with self.locks.hold(endpoint_id):
            is_kept = _is_kept(self.store.find_endpoint(endpoint_id), before)
            is_undoing = is_kept and await self.dead.teardowns.begin_undo(endpoint_id)
        if is_undoing:
            await self.dead.teardowns.wait_undone(endpoint_id)


def _is_kept(stored: EndpointRecord | None, before: EndpointRecord | None) -> bool:
    """Return whether a stored record is what an undo has kept for the next attempt."""
    return stored is not None and before is not None and stored == replace(before, phase=Phase.JOINING)


def _find_refusal(exc: Exception, before: EndpointRecord | None) -> PluginFailed | None:
    """Return the error of an attempt if a plugin refused it, and if an undo can keep what was there before.

    After Leave, an endpoint still has what the plugins of an earlier Join made.
    """
    can_be_kept = before is None or before.added_plugins == int(before.attachment.has_reservation)
    return exc if isinstance(exc, PluginFailed) and exc.exit_status is not None and can_be_kept else None
