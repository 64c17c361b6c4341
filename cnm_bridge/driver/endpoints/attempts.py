# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins of CreateEndpoint and Join, undoes a failure, and repeats what was refused and may become possible.

Every call that runs ADD goes through here, in every attach mode. `driver/teardown/contention.py` decides what is
waited for.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.teardown.contention import Contention
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts to create or join an endpoint, repeated as long as `Contention` says.

    ```python
    with attempts.under_way(endpoint_id) as call:
        contention = Contention(evictions, cni_network, wait_deadline(), endpoint)
        while True:
            async with attempts.attempt(call, contention) as before:
                ...
                return record
    ```
    """

    store: Store
    teardowns: TeardownQueue
    locks: KeyedLocks[EndpointId]
    _calls: dict[EndpointId, set["Call"]] = field(default_factory=dict, init=False)

    def stop(self, endpoint_id: EndpointId) -> None:
        """Let the calls under way for an endpoint make no further attempt, because Docker deletes it.

        An attempt that is running continues. Later calls are not affected.
        """
        for call in self._calls.get(endpoint_id, ()):
            call.is_stopped = True

    @contextmanager
    def under_way(self, endpoint_id: EndpointId) -> Iterator["Call"]:
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

    @asynccontextmanager
    async def attempt(self, call: "Call", contention: Contention) -> AsyncIterator[EndpointRecord | None]:
        """Make one attempt, the block, under the endpoint's lock; repeat it until a block has completed.

        The block receives the record from before the first attempt, None if there was none. It waits for what is known
        to be needed, calls `Contention.note_leaving`, and runs the plugins.

        Its error is suppressed if another attempt may succeed; what was done before the first one, such as a
        reservation, is kept until then. After any other error nothing is left of the endpoint, if plugins have run. The
        undo goes on in the background if it takes long or fails. An attempt of another call is never undone.

        Raises:
            Exception: That of the block.
            Refused: The same, with an endpoint that may hold what was refused; or Docker has deleted the endpoint
                before the first attempt.
        """
        try:
            async with self.locks.hold(call.endpoint_id):
                call.is_undoing = False
                if call.is_stopped:
                    raise call.error or Refused(f"endpoint {call.endpoint_id} has been deleted")
                stored = self.store.find_endpoint(call.endpoint_id)
                is_kept = call.is_kept(stored)
                if not is_kept:
                    call.before = stored
                try:
                    yield call.before
                except Exception as exc:  # begin to undo it before another call can see what it has left
                    if is_kept or self.store.find_endpoint(call.endpoint_id) != stored:
                        call.can_be_repeated = _can_be_repeated(exc, call.before)
                        keep = call.before if call.can_be_repeated else None
                        call.is_undoing = await self.teardowns.begin_undo(call.endpoint_id, keep=keep)
                    raise
        except Exception as exc:
            call.error = exc
            if not call.is_undoing:
                raise
            refusal = exc if isinstance(exc, PluginFailed) and call.can_be_repeated else None
            extend_s = None if refusal is None else contention.extend_undo_s
            if not await self.teardowns.wait_undone(call.endpoint_id, extend_s) or refusal is None:
                raise
            await self._wait(call, refusal, contention)

    async def _wait(self, call: "Call", refusal: PluginFailed, contention: Contention) -> None:
        """Return when another attempt may succeed; otherwise tear down what was kept, and raise."""
        try:
            if call.is_stopped:
                raise refusal
            await contention.wait_or_raise(refusal)
            if call.is_stopped:
                raise refusal
        except Exception:
            async with self.locks.hold(call.endpoint_id):
                is_kept = call.is_kept(self.store.find_endpoint(call.endpoint_id))
                is_undoing = is_kept and await self.teardowns.begin_undo(call.endpoint_id)
            if is_undoing:
                await self.teardowns.wait_undone(call.endpoint_id)
            raise


@dataclass(slots=True, eq=False)
class Call:
    """A call under way.

    Attributes:
        endpoint_id: Its endpoint.
        before: The record from before the first attempt, None if there was none.
        error: The error of the last attempt.
        is_stopped: Whether Docker has deleted the endpoint since the call began.
        is_undoing: Whether the undo of the last attempt has begun.
        can_be_repeated: Whether the undo keeps what is needed for another attempt.
    """

    endpoint_id: EndpointId
    before: EndpointRecord | None = None
    error: Exception | None = None
    is_stopped: bool = False
    is_undoing: bool = False
    can_be_repeated: bool = False

    def is_kept(self, stored: EndpointRecord | None) -> bool:
        """Return whether a stored record is what an undo has kept for this call's next attempt."""
        return stored is not None and self.before is not None and stored == replace(self.before, phase=Phase.JOINING)


def _can_be_repeated(exc: Exception, before: EndpointRecord | None) -> bool:
    """Return whether an attempt failed because a plugin refused it, and what was there before it can be kept.

    After Leave, an endpoint still has what the plugins of an earlier Join made.
    """
    if not isinstance(exc, PluginFailed) or exc.exit_status is None:
        return False
    return before is None or before.added_plugins == int(before.attachment.has_reservation)
