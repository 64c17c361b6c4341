# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Publishes ports that Docker requested while the endpoint's record was lost, as soon as the record is rebuilt.

dockerd requests the ports of a running container when another of its networks is disconnected, only logs the error, and
does not request them again (libnetwork, `sbLeave`). If the state has just been replaced by an older one, the record of
the endpoint is rebuilt some seconds later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from cni_bridge_state import EndpointId, StateError
from cni_invoker import CniError
from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.wire import ProgramExternalConnectivity

__all__ = ["MissedPorts"]

log = structlog.get_logger()

_MOST: Final = 1000
"""How many requests are kept; the oldest are dropped."""


class MissedPorts:
    """Keeps requests for the ports of endpoints without a record, in memory.

    Args:
        publish: Executes such a request.
    """

    def __init__(self, publish: Callable[[ProgramExternalConnectivity], Awaitable[None]]) -> None:
        self._publish = publish
        self._requests: dict[EndpointId, ProgramExternalConnectivity] = {}
        self._rebuilt: asyncio.Queue[EndpointId] = asyncio.Queue()

    def keep(self, request: ProgramExternalConnectivity) -> None:
        """Keep a request that was refused because its endpoint has no record."""
        self._requests[request.endpoint_id] = request
        if len(self._requests) > _MOST:
            del self._requests[next(iter(self._requests))]

    def forget(self, endpoint_id: EndpointId) -> None:
        """Drop the request for an endpoint that leaves its container, or is no longer its gateway endpoint."""
        self._requests.pop(endpoint_id, None)

    def note_rebuilt(self, endpoint_id: EndpointId) -> None:
        """Have the ports of an endpoint published, if any were requested; does not block."""
        if endpoint_id in self._requests:
            self._rebuilt.put_nowait(endpoint_id)

    async def run(self) -> None:
        """Publish the ports of rebuilt endpoints, until cancelled. Errors are logged."""
        while True:
            request = self._requests.pop(await self._rebuilt.get(), None)
            if request is None:
                continue
            with structlog.contextvars.bound_contextvars(endpoint_id=request.endpoint_id):
                try:
                    await self._publish(request)
                except (BridgeError, CniError, KernelError, StateError) as exc:
                    log.warning("endpoint.ports_not_published", error=str(exc))
