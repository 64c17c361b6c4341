# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Publishes and revokes ports as Docker has requested, and will not request again.

dockerd requests the ports of a running container when another of its networks is disconnected, only logs the error, and
does not request them again (libnetwork, `sbLeave`). Nor does it revoke them again when it connects another network. Two
such requests can still be completed:

* one that the previous run of the daemon had not completed when it ended: it is in the endpoint's record;
* one for an endpoint whose record was lost, because the state has just been replaced by an older one: the record is
  rebuilt some seconds later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.wire import ProgramExternalConnectivity

__all__ = ["MissedPorts"]

log = structlog.get_logger()

_MOST: Final = 1000
"""How many requests are kept; the oldest are dropped."""


class MissedPorts:
    """Keeps requests for ports that were not completed; one without ports revokes them.

    Args:
        store: The records, with the requests that the previous run had not completed.
        publish: Executes such a request.
    """

    def __init__(self, store: Store, publish: Callable[[ProgramExternalConnectivity], Awaitable[None]]) -> None:
        self._store = store
        self._publish = publish
        self._requests: dict[EndpointId, ProgramExternalConnectivity] = {}
        self._rebuilt: asyncio.Queue[EndpointId] = asyncio.Queue()

    def keep(self, request: ProgramExternalConnectivity) -> None:
        """Keep a request that could not be completed."""
        self._requests[request.endpoint_id] = request
        if len(self._requests) > _MOST:
            del self._requests[next(iter(self._requests))]

    def forget(self, endpoint_id: EndpointId) -> None:
        """Drop the request for an endpoint that leaves its container, or for which a newer one has come."""
        self._requests.pop(endpoint_id, None)

    def note_rebuilt(self, endpoint_id: EndpointId) -> None:
        """Have the ports of an endpoint published or revoked, if that was requested; does not block."""
        if endpoint_id in self._requests:
            self._rebuilt.put_nowait(endpoint_id)

    async def run(self) -> None:
        """Publish what the previous run had not completed, then the ports of rebuilt endpoints, until cancelled.

        Errors are logged.
        """
        for record in self._store.endpoints():
            if record.phase is Phase.JOINED and record.requested_ports:
                self.keep(_request_of(record))
                self.note_rebuilt(record.id)
        while True:
            request = self._requests.pop(await self._rebuilt.get(), None)
            if request is None:
                continue
            with structlog.contextvars.bound_contextvars(endpoint_id=request.endpoint_id):
                try:
                    await self._publish(request)
                except (BridgeError, CniError, KernelError, StateError) as exc:
                    log.warning("endpoint.ports_not_published", error=str(exc))


def _request_of(record: EndpointRecord) -> ProgramExternalConnectivity:
    return ProgramExternalConnectivity(
        network_id=record.network_id, endpoint_id=record.id, ports=record.requested_ports
    )
