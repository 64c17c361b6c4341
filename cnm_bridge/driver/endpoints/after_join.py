# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes EndpointOperInfo, ProgramExternalConnectivity and RevokeExternalConnectivity, for joined endpoints.

Docker passes `-p` to the current gateway endpoint of a container. While a container starts, that may be on a network
that cannot publish, until a network that can has joined: libnetwork chooses by name and joins in any order. So such a
call is an error only if the container has no other network.

Engines that forget a container's networks after such an error (29.1 and newer) keep them after one of CreateEndpoint.
That call has the ports, too, but not the container. From Engine 28 on, a container that starts has a process by then.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import structlog

from cni_bridge_spec import JsonError
from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, Phase, PortRequest, StateError, WrongPhase
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList, PluginFailed
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.engine_facts.container import container_of_cgroup, has_other_network, is_only_network
from cnm_bridge.core.errors import BridgeError, CannotPublish, EngineUnavailable, KernelError, Refused
from cnm_bridge.core.planning.ports import cannot_publish, publishing_plugins
from cnm_bridge.core.wire import CreateEndpoint, EndpointReference, ProgramExternalConnectivity
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.endpoints.attempts import wait_deadline
from cnm_bridge.driver.endpoints.container_files import ContainerFiles
from cnm_bridge.driver.endpoints.port_publisher import PortPublisher
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks

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

        The given error is raised if the endpoint's network is the container's only one.
        """
        if await self._is_only_network(request):
            raise error
        self.note(request.endpoint_id, error)

    def note(self, endpoint_id: EndpointId, error: CannotPublish) -> None:
        """Record why an endpoint publishes nothing, unless it has been removed, as while the engine was asked."""
        if self.store.find_endpoint(endpoint_id) is not None:
            self._reasons[endpoint_id] = str(error)
            log.warning("endpoint.ports_not_published", error=str(error))

    async def refuse_early(self, request: CreateEndpoint, network: NetworkConfigurationList) -> None:
        """Refuse ports that a network cannot publish, if it is certain that it is the only one of the new container.

        Otherwise ProgramExternalConnectivity decides. Before Engine 28, and while an engine boots, it is not known.
        Raises `CannotPublish` if the list publishes no ports, and all containers that are being started on the network
        have no other one.
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
                network = await self.engine.find_network(request.network_id)
                endpoint = network.endpoints.get(request.endpoint_id) if network else None
                name = endpoint.name if endpoint else ""
                container = await self.engine.find_container_named(name) if name else None
                return bool(network and container and not has_other_network(container.document, network))
        except (EngineUnavailable, JsonError, TimeoutError) as exc:
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


@dataclass(slots=True, kw_only=True)
class JoinedEndpoints:
    """Syncs the sandboxes of joined endpoints, publishes ports at a container's gateway endpoint, and revokes them."""

    store: Store
    port_publisher: PortPublisher
    unpublished: Unpublished
    sandbox_sync: SandboxSync
    files: ContainerFiles
    teardowns: TeardownQueue
    dead: DeadEndpoints
    locks: KeyedLocks[EndpointId]
    liveness: Liveness

    async def complete_requests(self) -> None:
        """Publish the ports that Docker had requested from the previous run, which ended before they were published.

        dockerd requests the ports of a running container when another of its networks is disconnected, only logs an
        error, and does not request them again (libnetwork, `sbLeave`). No endpoint waits for a plugin of another. If
        the list publishes none, the reason is recorded again.
        """
        async with asyncio.TaskGroup() as tasks:
            for record in self.store.endpoints():
                if record.phase is Phase.JOINED and record.requested_ports:
                    tasks.create_task(self._complete(record.id))

    async def oper_info(self, request: EndpointReference) -> None:
        """Sync the sandbox of an endpoint whose link may have been placed, and edit its container's files.

        Errors are only logged: the engine sends this call several times while a container starts, and before 28.1 an
        error makes the start fail.
        """
        try:
            await self.sandbox_sync.sync(request.endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.not_synced", error=str(exc))
        await self.files.apply(request.endpoint_id)

    async def program_external_connectivity(self, request: ProgramExternalConnectivity) -> None:
        """Make an endpoint its container's gateway endpoint, and publish the container's ports there.

        The sandbox is synced as well: from Engine 28 on, and in a running container, the link is in it by now. If the
        daemon ends before the ports are published, its next run publishes them.

        Raises:
            Refused: A port belongs to another endpoint, or the network cannot publish and is the container's only one.
            RecordNotFound, WrongPhase: There is no attached endpoint with that ID.
            CniError: A plugin failed.
            KernelError: The sandbox could not be synced.
        """
        await self._note_request(request.endpoint_id, request.ports)
        try:
            await self._program(request)
        except Exception:  # Docker receives the error; not if the daemon is being stopped
            await self._note_end(request.endpoint_id)
            raise
        if request.endpoint_id not in self.unpublished.reasons:  # else the next run must know it, too
            await self._note_end(request.endpoint_id)

    async def _program(self, request: ProgramExternalConnectivity) -> None:
        self.sandbox_sync.become_gateway(request.endpoint_id)
        await self.sandbox_sync.sync(request.endpoint_id)
        if not request.ports:
            return
        deadline = wait_deadline()
        owners = await self._find_owners(request)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.teardowns.wait_left([owner.id for owner in owners])
        try:
            await self._publish(request)
        except CannotPublish as exc:
            await self.unpublished.accept(request, exc)
        except Refused:
            if not await self.dead.tear_down(await self._find_owners(request), deadline):
                raise
            await self._publish(request)
        except PluginFailed as exc:
            if exc.verb != "ADD":  # `delete_in_reverse` has repeated a DEL
                raise
            # It is undone. If another network of a running container is disconnected, Docker only logs the error, and
            # never asks again (libnetwork, `sbLeave`): a plugin that was killed must not cost the container its ports.
            await self._publish(request)

    async def revoke_external_connectivity(self, request: EndpointReference) -> None:
        """Stop using an endpoint as its container's gateway endpoint, and revoke its ports, if it exists.

        A running publication is interrupted: its plugins are killed and its effects undone. The ports of a container
        that has ended are left to the teardown, which Docker requests next (moby, `Sandbox.Delete`). So `docker stop`
        does not wait for plugins. A container that requests the same ports waits for that teardown. Raises `CniError`
        if a plugin failed twice.
        """
        self.unpublished.forget(request.endpoint_id)
        self.sandbox_sync.stop_being_gateway(request.endpoint_id)
        self.port_publisher.interrupt(request.endpoint_id)
        await self._note_end(request.endpoint_id)
        async with self.locks.hold(request.endpoint_id):
            record = self.store.find_endpoint(request.endpoint_id)
            if record is None or not record.phase.is_attached or not self.port_publisher.has_ports(record):
                return
            if not await self.liveness.has_ended(record):
                await self.port_publisher.revoke(record)

    async def leave(self, endpoint_id: EndpointId) -> None:
        """Take an endpoint's addresses out of its container's /etc/hosts, and stop syncing and publishing."""
        await self.files.withdraw(endpoint_id)
        self.stop(endpoint_id)

    def stop(self, endpoint_id: EndpointId) -> None:
        """Stop syncing and publishing for an endpoint that leaves its sandbox; does not block."""
        self.sandbox_sync.forget(endpoint_id)
        self.files.forget(endpoint_id)
        self.port_publisher.interrupt(endpoint_id)

    async def _find_owners(self, request: ProgramExternalConnectivity) -> tuple[EndpointRecord, ...]:
        return await self.port_publisher.find_owners(request.endpoint_id, request.ports)

    async def _publish(self, request: ProgramExternalConnectivity) -> None:
        async with self.locks.hold(request.endpoint_id):
            record = self.store.get_endpoint(request.endpoint_id)
            if not record.phase.is_attached:
                raise WrongPhase(record.id, record.phase, Phase.JOINED)
            await self.port_publisher.publish(record, request.ports)
        self.unpublished.forget(request.endpoint_id)

    async def _complete(self, endpoint_id: EndpointId) -> None:
        """Publish the ports whose request is stored, unless the container has ended; log an error."""
        with structlog.contextvars.bound_contextvars(endpoint_id=endpoint_id):
            try:
                record = self.store.find_endpoint(endpoint_id)
                if record is None or await self.liveness.has_ended(record):
                    return
                chain = Endpoint(record).chain
                if not publishing_plugins(chain):
                    self.unpublished.note(endpoint_id, cannot_publish(chain))
                    return
                request = ProgramExternalConnectivity(
                    network_id=record.network_id, endpoint_id=endpoint_id, ports=record.requested_ports
                )
                await self.program_external_connectivity(request)
            except (BridgeError, CniError, KernelError, StateError) as exc:
                log.warning("endpoint.ports_not_published", error=str(exc))
            except Exception:  # a bug is logged, and must not keep the others from their ports
                log.exception("ports.bug")

    async def _note_request(self, endpoint_id: EndpointId, ports: tuple[PortRequest, ...]) -> None:
        """Store the ports that are being published, or cannot be; none if that is over.

        It need not survive a crash of the host, because the container would not.
        """
        async with self.locks.hold(endpoint_id):
            record = self.store.find_endpoint(endpoint_id)
            if record is not None and record.phase is Phase.JOINED and record.requested_ports != ports:
                await self.store.put_endpoint(replace(record, requested_ports=ports), sync=False)

    async def _note_end(self, endpoint_id: EndpointId) -> None:
        try:
            await self._note_request(endpoint_id, ())
        except StateError as exc:  # the next run would publish the same ports again
            log.warning("endpoint.not_stored", error=str(exc))
