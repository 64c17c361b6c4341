# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins of CreateEndpoint and Join, undoes a failure, and repeats what was refused and may become possible.

Every call that runs ADD goes through here, in every attach mode. `driver/teardown/contention.py` decides what is
waited for.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.driver.teardown.contention import Contention, ContentionResolver
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

__all__ = ["Attempts"]

Attempt = Callable[[EndpointRecord | None, Contention], Awaitable[EndpointRecord]]
"""Makes one attempt, under the endpoint's lock, with the record from before the first attempt; None if there was none.

It waits for what is known to be needed, calls `Contention.note_leaving`, and runs the plugins.
"""


class Attempts:
    """Repeats an attempt to create or join an endpoint as long as `Contention` says.

    Args:
        store: The records.
        teardowns: Undoes failed attempts.
        contention: Waits for endpoints that are being deleted, and evicts dead ones.
        locks: The locks of endpoints.
    """

    def __init__(
        self,
        store: Store,
        teardowns: TeardownQueue,
        contention: ContentionResolver,
        locks: KeyedLocks[EndpointId],
    ) -> None:
        self._store = store
        self._teardowns = teardowns
        self._contention = contention
        self._locks = locks

    async def __call__(self, endpoint_id: EndpointId, cni_network: str, attempt: Attempt) -> EndpointRecord:
        """Return the record of the attempt that succeeded.

        Between two attempts, what was done before the first one is kept, such as a reservation. After an error nothing
        is left of the endpoint, if plugins have run. The undo goes on in the background if it takes long or fails.

        Args:
            endpoint_id: The endpoint.
            cni_network: The CNI network on which it contends.
            attempt: Makes one attempt.

        Raises:
            Exception: That of the last attempt.
            Refused: The same, with an endpoint that may hold what was refused.
        """
        contention = self._contention.begin(cni_network)
        before: EndpointRecord | None = None
        while True:
            try:
                async with self._locks.hold(endpoint_id):
                    before = self._find_before(endpoint_id, before)
                    return await attempt(before, contention)
            except Exception as exc:
                refusal = exc if _can_be_repeated(exc, before) else None
                undone = await self._teardowns.undo(endpoint_id, keep=before if refusal else None)
                if not undone or not isinstance(refusal, PluginFailed):
                    raise
            try:
                await contention.wait_or_raise(refusal)
            except Exception:
                await self._teardowns.undo(endpoint_id)
                raise

    def _find_before(self, endpoint_id: EndpointId, before: EndpointRecord | None) -> EndpointRecord | None:
        """Return what was stored before the first attempt, unless another call has changed the record since."""
        stored = self._store.find_endpoint(endpoint_id)
        return before if before is not None and stored == replace(before, phase=Phase.JOINING) else stored


def _can_be_repeated(exc: Exception, before: EndpointRecord | None) -> bool:
    """Return whether an attempt failed because a plugin refused it, and what was there before it can be kept.

    After Leave, an endpoint still has what the plugins of an earlier Join made.
    """
    if not isinstance(exc, PluginFailed) or exc.exit_status is None:
        return False
    return before is None or before.added_plugins == int(before.attachment.has_reservation)
