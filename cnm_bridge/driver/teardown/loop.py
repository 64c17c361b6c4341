# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Attempts each pending teardown until it completes, with growing pauses."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.teardown.pending import Failure, Pending, PendingTeardowns
from cnm_bridge.driver.teardown.slots import TeardownSlots
from cnm_bridge.driver.teardown.teardown import CheckedTeardown
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.system.trace import traced

log = structlog.get_logger()

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_QUIET_S: Final = 0.1
"""How long Docker must have been quiet. Its calls for one starting container are closer together than this."""
_LONGEST_DEFERRAL_S = 2.0
"""A host that is never quiet must still release addresses."""


@dataclass(slots=True, kw_only=True)
class TeardownLoop:
    """Attempts each pending teardown until it completes, with growing pauses.

    One that is deferred waits until Docker makes no other calls: when many containers start and end at once, the
    plugins of the ended ones would compete for the processors with those of the starting ones.

    Attributes:
        quiet_s: Returns the seconds since Docker's last call about any other endpoint.
    """

    store: Store
    teardown: CheckedTeardown
    pending: PendingTeardowns
    locks: KeyedLocks[EndpointId]
    slots: TeardownSlots
    quiet_s: Callable[[EndpointId], float]
    _added: asyncio.Queue[Pending] = field(default_factory=asyncio.Queue)

    def begin(self, pending: Pending) -> None:
        """Begin the attempts of a teardown; does not block."""
        self._added.put_nowait(pending)

    async def run(self) -> None:
        """Run the pending teardowns until cancelled. Then it can be called again, and continues with all of them."""
        self._added = asyncio.Queue()
        for pending in self.pending.all.values():
            self.begin(pending)
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._run(await self._added.get()))
                await asyncio.sleep(0)  # thousands of teardowns must not all begin in one turn of the event loop

    async def _run(self, pending: Pending) -> None:
        """Repeat a teardown until it completes, with growing pauses."""
        pause_s = _FIRST_PAUSE_S
        while not await self._attempt(pending):
            try:
                async with asyncio.timeout(pause_s):
                    await pending.wake.wait()
                pause_s = _FIRST_PAUSE_S
            except TimeoutError:
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _attempt(self, pending: Pending) -> bool:
        """Make one attempt; return whether the teardown has completed."""
        with traced(endpoint_id=pending.endpoint_id):
            try:
                await self._wait_quiet(pending)
                await self._attempt_in_slot(pending)
            except Exception:  # a bug must be logged; it must not end the daemon or the other teardowns
                log.exception("retry.bug", key=pending.endpoint_id)
        pending.is_requested = pending.is_deferred = False
        pending.attempts += not pending.is_done
        self.pending.announce()
        return pending.is_done

    async def _wait_quiet(self, pending: Pending) -> None:
        """Wait until Docker is quiet or a call needs this teardown, unless it begins at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_DEFERRAL_S):
                while pending.is_deferred and (rest_s := _QUIET_S - self.quiet_s(pending.endpoint_id)) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(rest_s):
                            await pending.wake.wait()
                            break
        pending.is_deferred = False
        pending.wake.clear()

    async def _attempt_in_slot(self, pending: Pending) -> None:
        """Make one attempt, under the endpoint's lock; remove the teardown if it has completed."""
        before = self.store.find_endpoint(pending.endpoint_id)
        network = "" if before is None else before.attachment.network
        async with self.slots.teardown(pending, network), self.locks.hold(pending.endpoint_id):
            record = self.store.find_endpoint(pending.endpoint_id)
            is_undo = pending.is_undo
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
            _note_failure(pending, exc)
            return False
        finally:
            pending.is_running = False
        return True


def _note_failure(pending: Pending, exc: Exception) -> None:
    since = time.monotonic() if pending.failure is None else pending.failure.since
    pending.failure = Failure(error=str(exc), since=since)
    if isinstance(exc, PluginTimeout) and exc.started:
        pending.has_hung = True
    elif isinstance(exc, PluginFailed):  # it answers again, or the one that hung has completed
        pending.has_hung = False
