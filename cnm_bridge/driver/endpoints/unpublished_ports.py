# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports that Docker has requested and that are not published: because the network cannot, or not yet.

Docker passes `-p` to the current gateway endpoint of a container. While a container starts, that may be on a network
that cannot publish, until a network that can has joined: libnetwork chooses by name and joins in any order. So such a
call is an error only if the container has no other network (`Unpublished`).

Engines that forget a container's networks after such an error (29.1 and newer) keep them after one of CreateEndpoint.
That call has the ports, too, but not the container. From Engine 28 on, a container that starts has a process by then.

dockerd requests the ports of a running container when another of its networks is disconnected, only logs the error, and
does not request them again (libnetwork, `sbLeave`). Nor does it revoke them again when it connects another network. Two
such requests can still be completed (`MissedPorts`):

* one that the previous run of the daemon had not completed when it ended: it is in the endpoint's record;
* one for an endpoint whose record was lost, because the state has just been replaced by an older one: the record is
  rebuilt some seconds later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from cni_bridge_spec import JsonError
from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.core.engine_facts import container_of_cgroup, is_only_network
from cnm_bridge.core.errors import BridgeError, CannotPublish, EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.ports import cannot_publish, publishing_plugins
from cnm_bridge.core.wire import CreateEndpoint, ProgramExternalConnectivity
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_PATIENCE_S: Final = 1.0
"""Time limit of the query to the engine. A booting dockerd starts containers and does not answer."""
_MOST: Final = 1000
"""How many requests are kept; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Accepts that a network cannot publish ports, unless it is certain that the container has no other network."""

    store: Store
    engine: Engine
    kernel: Kernel
    _reasons: dict[EndpointId, str] = field(default_factory=dict, init=False)

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
        if not request.has_ports or publishing_plugins(network):
            return
        if await self._is_only_network_of_starting(request.network_id):
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


@dataclass(frozen=True, slots=True)
class MissedPorts:
    """Keeps requests for ports that were not completed; one without ports revokes them.

    Attributes:
        publish: Executes such a request.
    """

    store: Store
    publish: Callable[[ProgramExternalConnectivity], Awaitable[None]]
    _requests: dict[EndpointId, ProgramExternalConnectivity] = field(default_factory=dict, init=False)
    _rebuilt: asyncio.Queue[EndpointId] = field(default_factory=asyncio.Queue, init=False)

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

        Errors are logged. No endpoint waits for another: a plugin may hang.
        """
        for record in self.store.endpoints():
            if record.phase is Phase.JOINED and record.requested_ports:
                self.keep(_request_of(record))
                self.note_rebuilt(record.id)
        async with asyncio.TaskGroup() as tasks:
            while True:
                request = self._requests.pop(await self._rebuilt.get(), None)
                if request is not None:
                    tasks.create_task(self._complete(request))

    async def _complete(self, request: ProgramExternalConnectivity) -> None:
        with structlog.contextvars.bound_contextvars(endpoint_id=request.endpoint_id):
            try:
                await self.publish(request)
            except (BridgeError, CniError, KernelError, StateError) as exc:
                log.warning("endpoint.ports_not_published", error=str(exc))
            except Exception:  # a bug is logged, and must not end the work for the others
                log.exception("ports.bug")


def _request_of(record: EndpointRecord) -> ProgramExternalConnectivity:
    return ProgramExternalConnectivity(
        network_id=record.network_id, endpoint_id=record.id, ports=record.requested_ports
    )
