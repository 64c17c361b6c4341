# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The life of an endpoint: create, join, leave, delete.

Each call is a straight line under the endpoint's lock: its record, its attacher, the store.
"""

from dataclasses import replace
from typing import Final

import structlog

from cnm_bridge.attach.protocol import Attacher, Attachers
from cnm_bridge.attach.sandbox_sync import SandboxSync
from cnm_bridge.endpoints.caller import CallerLookup
from cnm_bridge.endpoints.creation import EndpointCreation
from cnm_bridge.endpoints.port_publisher import PortPublisher
from cnm_bridge.errors import Refused
from cnm_bridge.kernel import KernelError
from cnm_bridge.planning.plugin_support import has_device
from cnm_bridge.recovery.adopt import AdoptEndpoint
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.wire import ChosenInterface, CreateEndpoint, EndpointReference, Join, Joined
from state import EndpointId, EndpointRecord, Phase, StateError, Store, WrongPhase

__all__ = ["EndpointService"]

log = structlog.get_logger()

_NO_GATEWAY: Final = "no port is published (-p, -P) if no other network has a default route (before Engine 28: of IPv4)"


class EndpointService:
    """Creates endpoints, joins them to sandboxes, takes them back and deletes them.

    Every call may be repeated with the same ID and gives the same answer.

    Args:
        store: The records.
        creation: Makes endpoints.
        attachers: The attacher of each mode.
        sandbox_sync: Adds to sandboxes what Join cannot express.
        teardowns: Tears endpoints down, in the background.
        adopt: Finds endpoints whose records were lost.
        port_publisher: Runs plugins that must not keep an endpoint that leaves.
        engine_process: Finds the process that asks.
        locks: The locks of endpoints.
    """

    def __init__(
        self,
        *,
        store: Store,
        creation: EndpointCreation,
        attachers: Attachers,
        sandbox_sync: SandboxSync,
        teardowns: TeardownQueue,
        adopt: AdoptEndpoint,
        port_publisher: PortPublisher,
        engine_process: CallerLookup,
        locks: KeyedLocks[EndpointId],
    ) -> None:
        self._store = store
        self._creation = creation
        self._attachers = attachers
        self._sandbox_sync = sandbox_sync
        self._teardowns = teardowns
        self._adopt = adopt
        self._port_publisher = port_publisher
        self._engine_process = engine_process
        self._locks = locks

    async def create(self, request: CreateEndpoint, caller_pid: int) -> ChosenInterface:
        """Attach an endpoint and answer what Docker did not choose itself.

        When it raises, nothing is left of the endpoint; if cleaning up failed as well, it goes on in the background.

        Raises:
            BadOption, Refused: The request asks for what is not possible; nothing has been tried.
            CniError: The network's configuration does not exist, or a plugin failed: its own message.
            KernelError: The link cannot be taken out of the staging namespace.
            StateError: The record cannot be written.
        """
        async with self._locks.hold(request.endpoint_id):
            record = self._store.find_endpoint(request.endpoint_id)
            if record is None:
                record = await self._creation(request, self._engine_process.find(caller_pid))
            else:
                _refuse_other(record, request)
            return self._attacher(record).create_reply(record)

    async def join(self, request: Join, caller_pid: int) -> Joined:
        """Hand an endpoint over to a sandbox.

        Raises:
            RecordNotFound, WrongPhase: There is no attached endpoint of that ID.
        """
        async with self._locks.hold(request.endpoint_id):
            record = self._store.get_endpoint(request.endpoint_id)
            if not record.phase.is_attached:
                raise WrongPhase(record.id, record.phase, Phase.JOINED)
            # behind a proxy that forks for each connection no caller lives as long as the engine
            caller = record.caller if record.caller == self._engine_process.find(caller_pid) else None
            record = replace(record, phase=Phase.JOINED, sandbox_key=request.sandbox_key, caller=caller)
            attacher = self._attacher(record)
            record = await attacher.attach(record, self._store.put_endpoint)
            answer = attacher.join_reply(record)
            if request.has_ports and answer.gateway is None:
                log.info("endpoint.no_gateway", consequence=_NO_GATEWAY)
            return answer

    async def oper_info(self, request: EndpointReference) -> None:
        """Sync the sandbox of an endpoint whose link may have been placed; an error is logged.

        The engine asks about endpoints several times while a container starts; before 28.1 an error is fatal to it.
        """
        try:
            await self._sandbox_sync.sync(request.endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.not_synced", error=str(exc))

    async def leave(self, request: EndpointReference) -> None:
        """Take an endpoint back from its sandbox; one that was not joined, or is not known, has left already.

        The link is still inside when this is called; libnetwork moves it back to the host namespace afterwards.
        """
        self._stop_working_for(request.endpoint_id)
        await self._adopt.find(request.network_id, request.endpoint_id)
        async with self._locks.hold(request.endpoint_id):
            record = self._store.find_endpoint(request.endpoint_id)
            if record is not None and record.phase is Phase.JOINED:
                await self._attacher(record).leave(record)
                await self._store.put_endpoint(replace(record, phase=Phase.READY))

    async def delete(self, request: EndpointReference) -> None:
        """Have an endpoint torn down, whether it was joined, left or neither; an unknown one is gone already.

        The teardown goes on in the background (docs/decisions, 13): when this returns, it is on disk that it must be
        done. But a device of the host is waited for, unless its plugins fail: meanwhile somebody else could find it
        there under the endpoint's name.

        Raises:
            StateError: It is not on disk; it goes on all the same.
        """
        self._stop_working_for(request.endpoint_id)
        try:
            await self._teardowns.request(request.endpoint_id)
        finally:
            record = self._store.find_endpoint(request.endpoint_id)
            if record is not None and has_device(record):
                await self._teardowns.wait_tried([record.id])

    def _stop_working_for(self, endpoint_id: EndpointId) -> None:
        self._sandbox_sync.forget(endpoint_id)
        self._port_publisher.interrupt(endpoint_id)

    def _attacher(self, record: EndpointRecord) -> Attacher:
        return self._attachers[record.attach_mode]


def _refuse_other(record: EndpointRecord, request: CreateEndpoint) -> None:
    """Refuse a CreateEndpoint whose ID is taken; a repeated one is not refused."""
    if record.network_id != request.network_id:
        raise Refused(f"endpoint {record.id} exists already, on network {record.network_id}")
    if not record.phase.is_attached:
        raise Refused(f"endpoint {record.id} exists already, and is being torn down")
