# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Attempts each pending teardown, when Docker is quiet or at once, in a slot and under the endpoint's lock."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.teardown.pending import Pending, PendingTeardowns, Urgency
from cnm_bridge.driver.teardown.slots import TeardownSlots
from cnm_bridge.driver.teardown.teardown import CheckedTeardown
from cnm_bridge.system.log import traced
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_QUIET_S: Final = 0.1
"""How long Docker must have been quiet. Its calls for one starting container are closer together than this."""
_LONGEST_DEFERRAL_S = 2.0
"""A host that is never quiet must still release addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownLoop:
    """Attempts each pending teardown until it completes.

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

    async def run(self) -> None:
        """Run the pending teardowns until cancelled. Then it can be called again, and continues with all of them."""
        await self.pending.run(self._attempt)

    async def _attempt(self, pending: Pending) -> bool:
        """Make one attempt; return whether the teardown has completed."""
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
        async with self.slots.teardown(pending, network), self.locks.hold(pending.key):
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
