# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports that Docker has requested and that a network cannot publish.

Docker passes `-p` to the current gateway endpoint of a container. While a container starts, that may be on a network
that cannot publish, until a network that can has joined: libnetwork chooses by name and joins in any order. So such a
call is an error only if the container has no other network.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import CannotPublish, EngineUnavailable
from cnm_bridge.core.wire.network_driver import ProgramExternalConnectivity
from cnm_bridge.system.engine import Engine

log = structlog.get_logger()

_PATIENCE_S: Final = 1.0
"""Time limit of the query to the engine. A booting dockerd starts containers and does not answer."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Accepts that a network cannot publish ports, unless it is certain that the container has no other network."""

    store: Store
    engine: Engine
    _reasons: dict[EndpointId, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.store.when_removed(self.forget)

    @property
    def reasons(self) -> Mapping[EndpointId, str]:
        """Endpoint → reason why its ports are not published."""
        return MappingProxyType(self._reasons)

    async def accept(self, request: ProgramExternalConnectivity, error: CannotPublish) -> None:
        """Record that an endpoint publishes nothing, and let its container start.

        Raises:
            CannotPublish: The given error: the endpoint's network is the container's only one.
        """
        if await self._is_only_network(request):
            raise error
        if self.store.find_endpoint(request.endpoint_id) is None:  # removed while the engine was asked
            return
        self._reasons[request.endpoint_id] = str(error)
        log.warning("endpoint.ports_not_published", error=str(error))

    def forget(self, endpoint_id: EndpointId) -> None:
        """Drop the reason, because the endpoint has published its ports or has none any more."""
        self._reasons.pop(endpoint_id, None)

    async def _is_only_network(self, request: ProgramExternalConnectivity) -> bool:
        """Ask the engine whether the network is the container's only one; without an answer in time, return False."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self.engine.is_only_network(request.network_id, request.endpoint_id)
        except (EngineUnavailable, TimeoutError) as exc:
            log.info("container.networks_unknown", error=str(exc) or type(exc).__name__)
            return False
