# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes the calls about one endpoint: create, join, leave, delete.

Each call takes the endpoint's lock, reads its record, calls its attacher, and stores the new record.
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
    """Creates endpoints, joins them to sandboxes, lets them leave, and deletes them.

    Every call is idempotent: repeated with the same ID it returns the same reply.

    Args:
        store: The records.
        creation: Creates endpoints.
        attachers: The attacher of each mode.
        sandbox_sync: Adds to sandboxes what the reply to Join cannot express.
        teardowns: Tears endpoints down in the background.
        adopt: Rebuilds the records of endpoints whose records were lost.
        port_publisher: Publishes ports; interrupted when an endpoint leaves.
        engine_process: Identifies the calling process.
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
        """Create an endpoint and return the values that Docker did not choose.

        After an error nothing is left of the endpoint; if the cleanup also failed, it continues in the background.

        Raises:
            BadOption, Refused: The request is invalid or not possible; nothing has been changed.
            CniError: The network's configuration does not exist, or a plugin failed; the text is the plugin's.
            KernelError: The link cannot be moved out of the staging namespace.
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
        """Join an endpoint to a sandbox.

        Raises:
            RecordNotFound, WrongPhase: There is no attached endpoint with that ID.
            StateError: The record cannot be written.
        """
        async with self._locks.hold(request.endpoint_id):
            record = self._store.get_endpoint(request.endpoint_id)
            if not record.phase.is_attached:
                raise WrongPhase(record.id, record.phase, Phase.JOINED)
            # A proxy may fork for each connection. Its process ends before the engine and says nothing about it.
            caller = record.caller if record.caller == self._engine_process.find(caller_pid) else None
            record = replace(record, phase=Phase.JOINED, sandbox_key=request.sandbox_key, caller=caller)
            attacher = self._attacher(record)
            record = await attacher.attach(record, self._store.put_endpoint)
            answer = attacher.join_reply(record)
            if request.has_ports and answer.gateway is None:
                log.info("endpoint.no_gateway", consequence=_NO_GATEWAY)
            return answer

    async def oper_info(self, request: EndpointReference) -> None:
        """Sync the sandbox of an endpoint whose link may have been placed.

        Errors are only logged: the engine sends this call several times while a container starts, and before 28.1 an
        error makes the start fail.
        """
        try:
            await self._sandbox_sync.sync(request.endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.not_synced", error=str(exc))

    async def leave(self, request: EndpointReference) -> None:
        """Let an endpoint leave its sandbox; does nothing if it is not joined or does not exist.

        The link is still in the sandbox; libnetwork moves it back to the host namespace after this call.
        """
        self._stop_working_for(request.endpoint_id)
        await self._adopt.find(request.network_id, request.endpoint_id)
        async with self._locks.hold(request.endpoint_id):
            record = self._store.find_endpoint(request.endpoint_id)
            if record is not None and record.phase is Phase.JOINED:
                await self._attacher(record).leave(record)
                await self._store.put_endpoint(replace(record, phase=Phase.READY))

    async def delete(self, request: EndpointReference) -> None:
        """Request the teardown of an endpoint in any phase, if it exists.

        The teardown runs in the background (docs/decisions, 13); when this returns, the request is on disk. If the link
        is a device of the host, this waits for the first attempt of the teardown, because until then the device is in
        the host namespace under the name of the endpoint's link.

        Raises:
            StateError: The request could not be stored; the teardown runs nevertheless.
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
    """Refuse a CreateEndpoint whose ID exists on another network or is being torn down; a repetition is accepted."""
    if record.network_id != request.network_id:
        raise Refused(f"endpoint {record.id} exists already, on network {record.network_id}")
    if not record.phase.is_attached:
        raise Refused(f"endpoint {record.id} exists already, and is being torn down")
