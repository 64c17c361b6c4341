# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports that Docker has requested and that a network cannot publish.

Docker passes `-p` to the current gateway endpoint of a container. While a container starts, that may be on a network
that cannot publish, until a network that can has joined: libnetwork chooses by name and joins in any order. So such a
call is an error only if the container has no other network.

Engines that forget a container's networks after such an error (29.1 and newer) keep them after one of CreateEndpoint.
That call has the ports, too, but not the container. From Engine 28 on, a container that starts has a process by then.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from cni_bridge_spec import JsonError
from cni_bridge_state import EndpointId, NetworkId
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts import container_of_cgroup, is_only_network
from cnm_bridge.core.errors import CannotPublish, EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.ports import cannot_publish, publishing_plugins
from cnm_bridge.core.wire.network_driver import CreateEndpoint, ProgramExternalConnectivity
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_PATIENCE_S: Final = 1.0
"""Time limit of the query to the engine. A booting dockerd starts containers and does not answer."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Accepts that a network cannot publish ports, unless it is certain that the container has no other network."""

    store: Store
    engine: Engine
    kernel: Kernel
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

    async def refuse_early(self, request: CreateEndpoint, network: NetworkConfigurationList) -> None:
        """Refuse ports that a network cannot publish, if it is certain that it is the only one of the new container.

        Otherwise ProgramExternalConnectivity decides. Before Engine 28, and while an engine boots, it is not known.

        Raises:
            CannotPublish: The list publishes no ports, and all containers that are being started on the network have
                no other one.
        """
        if not publishing_plugins(network) and await self._is_only_network_of_starting(request.network_id):
            raise cannot_publish(network)

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

    async def _is_only_network_of_starting(self, network_id: NetworkId) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                cgroups = await self.kernel.find_recent_cgroups()
                ids = sorted(set(filter(None, map(container_of_cgroup, cgroups))))
                containers = await self.engine.find_starting(ids) if ids else ()
                network = await self.engine.find_network(network_id) if containers else None
                return network is not None and is_only_network(network, containers)
        except (EngineUnavailable, JsonError, KernelError, TimeoutError) as exc:
            log.info("container.networks_unknown", error=str(exc) or type(exc).__name__)
            return False
