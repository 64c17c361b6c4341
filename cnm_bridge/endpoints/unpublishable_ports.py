# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Endpoints that are their container's way to the outside, and whose network cannot publish the container's ports.

Docker passes `-p` to whichever network of a container is the gateway at the moment. While a container starts that may
be a network that cannot publish, until one that can has joined: libnetwork chooses by name, and joins in any order. So
such a call is an error only if the container has no other network.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import structlog

from cnm_bridge.engine import Engine
from cnm_bridge.errors import CannotPublish, EngineUnavailable
from cnm_bridge.wire import ProgramExternalConnectivity
from state import EndpointId, Store

__all__ = ["Unpublished"]

log = structlog.get_logger()

_PATIENCE_S: Final = 1.0
"""How long the engine may take. While dockerd boots it does not answer, and starts containers in that time."""


class Unpublished:
    """Accepts what a network cannot publish, unless it is certain that the container has no other network.

    Args:
        store: The records; nothing is kept of an endpoint without one.
        engine: Knows the networks of containers.
    """

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._reasons: dict[EndpointId, str] = {}

    @property
    def reasons(self) -> Mapping[EndpointId, str]:
        """Why ports are not published, by endpoint."""
        return MappingProxyType(self._reasons)

    async def accept(self, request: ProgramExternalConnectivity, error: CannotPublish) -> None:
        """Note that an endpoint publishes nothing, and let its container start.

        Raises:
            CannotPublish: The given error: the endpoint's network is the container's only one.
        """
        if await self._is_only_network(request):
            raise error
        if self._store.find_endpoint(request.endpoint_id) is None:  # removed while the engine was asked
            return
        self._reasons[request.endpoint_id] = str(error)
        log.warning("endpoint.ports_not_published", error=str(error))

    def forget(self, endpoint_id: EndpointId) -> None:
        """Note that an endpoint has nothing to publish any more, or has published it."""
        self._reasons.pop(endpoint_id, None)

    async def _is_only_network(self, request: ProgramExternalConnectivity) -> bool:
        """Ask the engine; no answer in time means no. Where the container starts without a need, nothing is broken."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._engine.is_only_network(request.network_id, request.endpoint_id)
        except (EngineUnavailable, TimeoutError) as exc:
            log.info("container.networks_unknown", error=str(exc) or type(exc).__name__)
            return False
