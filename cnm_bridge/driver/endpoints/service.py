# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes the calls about one endpoint: create, join, leave, delete.

Each call takes the endpoint's lock, reads its record, calls its attacher, and stores the new record. `Attempts` undoes
a failure, and repeats it after a refusal that may pass.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from cni_bridge_state import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    EndpointId,
    EndpointRecord,
    Phase,
    ProcessRecord,
    RecordNotFound,
    StateError,
    WrongPhase,
)
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.addressing import fixed_addresses, is_asking, without_request
from cnm_bridge.core.planning.plan import Plan, with_attachment
from cnm_bridge.core.wire import (
    ChosenInterface,
    CreateEndpoint,
    EndpointReference,
    Join,
    Joined,
    ProgramExternalConnectivity,
)
from cnm_bridge.driver.attach.attacher import Attacher, Attachers
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints
from cnm_bridge.driver.endpoints.attempts import Attempts, Call, Contention, wait_deadline
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_BRIDGE: Final = "bridge"
_NO_GATEWAY: Final = "no port is published (-p, -P) if no other network has a default route (before Engine 28: of IPv4)"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointService:
    """Creates endpoints, joins them to sandboxes, lets them leave, and deletes them.

    Every call is idempotent: repeated with the same ID it returns the same reply.
    """

    store: Store
    planner: EndpointPlanner
    attempts: Attempts
    attachers: Attachers
    owners: AddressOwners
    teardowns: TeardownQueue
    joined: JoinedEndpoints
    ways_out: WaysOut
    locks: KeyedLocks[EndpointId]
    _attachments: KeyedLocks[AttachmentId] = field(default_factory=KeyedLocks, init=False)
    """Several endpoints may want the same one."""

    async def create(self, request: CreateEndpoint, caller: ProcessRecord | None) -> ChosenInterface:
        """Create an endpoint, if it does not exist; return the values that Docker did not choose.

        After an error nothing is left of the endpoint; if the cleanup takes long or fails, it continues in the
        background.

        Raises:
            BadOption, Refused: The request is invalid or not possible, or Docker has deleted the endpoint before its
                plugins ran; nothing has been changed.
            CniError: The network's configuration does not exist, or a plugin failed; the text is the plugin's.
            KernelError: The link cannot be moved out of the staging namespace.
            StateError: The record cannot be written.
        """
        with self.attempts.under_way(request.endpoint_id) as call:
            async with self.locks.hold(request.endpoint_id):
                record = self.store.find_endpoint(request.endpoint_id)
            if record is None:
                # The plan is made before anything is stored or done, so an invalid request changes nothing.
                planned, plan = await self.planner.plan(request, caller)
                if request.has_ports:
                    await self.joined.unpublished.refuse_early(request, plan.configuration)
                deadline = wait_deadline()  # the wait for a network's name has a limit of its own
                async with self._attachments.hold(planned.attachment.id):
                    record = await self._create(call, planned, plan, deadline)
        _refuse_other(record, request)
        return self._attacher(record).create_reply(record)

    async def join(self, request: Join, caller: ProcessRecord | None) -> Joined:
        """Join an endpoint to a sandbox.

        In modes that attach in the sandbox, an error of the attachment leaves nothing, as one of `create`.

        Raises:
            RecordNotFound, WrongPhase: There is no attached endpoint with that ID.
            Refused, CniError, KernelError: The endpoint cannot be attached, its container has a way out, or its ports
                cannot be published although Docker does not ask for them later.
            StateError: The record cannot be written.
        """
        attachment = self.store.get_endpoint(request.endpoint_id).attachment
        with self.attempts.under_way(request.endpoint_id) as call:
            record = await self._attach(call, request, caller, attachment)
        if request.ports and self._must_publish_now(record):
            ports = ProgramExternalConnectivity(
                network_id=record.network_id, endpoint_id=record.id, ports=request.ports
            )
            await self.joined.program_external_connectivity(ports)
        answer = self._attacher(record).join_reply(record)
        if request.ports and answer.gateway is None:
            log.info("endpoint.no_gateway", consequence=_NO_GATEWAY)
        return answer

    def _must_publish_now(self, record: EndpointRecord) -> bool:
        """Return whether the container's ports are published at Join, because Docker does not ask for them later.

        A guarded network that is internal for Docker has a gateway, of which Docker learns from the answer to Join.
        """
        network, version = self.store.find_network(record.network_id), self.planner.version.current
        is_internal = network is not None and network.internal and not record.internal
        return is_internal and (version is None or not version.programs_internal)

    async def leave(self, request: EndpointReference) -> None:
        """Let an endpoint leave its sandbox; does nothing if it is not joined or does not exist.

        The link is still in the sandbox; libnetwork moves it back to the host namespace after this call.
        """
        await self.joined.leave(request.endpoint_id)
        if self.store.find_network(request.network_id) is None:  # the state is lost: rounds ask the engine that has it
            with suppress(StateError):
                await self.planner.lists.engine_import.find(request.network_id)
        seen = self.store.find_endpoint(request.endpoint_id)
        if seen is not None and seen.phase is Phase.DELETING:  # a plugin of its teardown may hang
            return
        async with self.locks.hold(request.endpoint_id):
            record = self.store.find_endpoint(request.endpoint_id)
            if record is not None and record.phase is Phase.JOINED:
                left = await self._attacher(record).leave(record)
                await self.store.put_endpoint(replace(left, requested_ports=()))

    async def delete(self, request: EndpointReference) -> None:
        """Request the teardown of an endpoint in any phase, if it exists.

        The teardown runs in the background (docs/decisions/answer-before-del.md); when this returns, the request is on
        disk. If the link is a device of the host, this waits for the first attempt of the teardown, because until then
        the device is in the host namespace under the name of the endpoint's link.

        Raises:
            StateError: The request could not be stored; the teardown runs nevertheless.
        """
        self.joined.stop(request.endpoint_id)
        self.attempts.stop(request.endpoint_id)
        try:
            await self.teardowns.request(request.endpoint_id)
        finally:
            record = self.store.find_endpoint(request.endpoint_id)
            if record is not None and Endpoint(record).has_device:
                await self.teardowns.wait_tried([record.id])

    async def _create(self, call: Call, planned: EndpointRecord, plan: Plan, deadline: float) -> EndpointRecord:
        contention = Contention(
            self.attempts.dead,
            plan.configuration.name,
            deadline,
            EndpointReference(network_id=planned.network_id, endpoint_id=planned.id),
            plan.fixed_addresses,
            may_ask_for_none=is_asking(plan.sticky),
        )
        return await self.attempts.make(call, contention, partial(self._try_to_create, planned, plan, contention))

    async def _try_to_create(
        self, planned: EndpointRecord, plan: Plan, contention: Contention, stored: EndpointRecord | None
    ) -> EndpointRecord:
        if stored is not None:  # by another call, since the plan was made
            return stored
        await contention.wait_for_attachment(planned.attachment.id)
        await contention.wait_for_addresses()
        if contention.asks_for_none:
            planned = self._without_request(planned)
            plan = with_attachment(plan, planned.attachment)
        contention.note_attempt()
        # No await since the wait: no teardown begins unseen. Between two attempts there is no claim, so that the DEL of
        # an endpoint with the same address can complete.
        with self.owners.claim(planned.id, plan.fixed_addresses, plan.configuration):
            await self.store.put_endpoint(planned)
            record = await self._attacher(planned).prepare(planned, plan)
        log.info("endpoint.created", configuration=plan.configuration.name, mode=record.attachment.mode.shown)
        self._warn_of_mac(record, plan)
        _warn_of_missed(record)
        return record

    def _warn_of_mac(self, record: EndpointRecord, plan: Plan) -> None:
        """Log that the MAC that was given for a link is on its bridge already: neither container is reachable then."""
        found = self.store.endpoints_with_mac(record.attachment.network, record.mac) if record.mac else ()
        others = [endpoint_id for endpoint_id in found if endpoint_id != record.id]
        if others and plan.configuration.plugins[0].type == _BRIDGE:
            log.warning("endpoint.mac_taken", mac=record.mac, taken_by=others)

    async def _attach(
        self, call: Call, request: Join, caller: ProcessRecord | None, attachment: AttachmentRecord
    ) -> EndpointRecord:
        network = NetworkConfigurationList.from_document(attachment.configuration)
        contention = Contention(
            self.attempts.dead,
            attachment.network,
            wait_deadline(),
            EndpointReference(network_id=request.network_id, endpoint_id=request.endpoint_id),
            fixed_addresses(network, attachment.args, attachment.capability_args),
            may_ask_for_none=is_asking(attachment.sticky) and attachment.mode is AttachMode.DIRECT,
        )
        return await self.attempts.make(call, contention, partial(self._try_to_join, request, caller, contention))

    async def _try_to_join(
        self, request: Join, caller: ProcessRecord | None, contention: Contention, record: EndpointRecord | None
    ) -> EndpointRecord:
        if record is None:
            raise RecordNotFound("endpoint", request.endpoint_id)
        if not record.phase.is_attached:
            raise WrongPhase(record.id, record.phase, Phase.JOINED)
        # A proxy may fork for each connection. Its process ends before the engine and says nothing about it.
        same_caller = caller if caller == record.caller else None
        process = record.first_process if record.sandbox_key == request.sandbox_key else None
        joined = replace(record, sandbox_key=request.sandbox_key, caller=same_caller, first_process=process)
        if contention.asks_for_none:
            joined = self._without_request(joined)
        await self.ways_out.refuse(joined)
        contention.note_attempt()
        attached = await self._attacher(joined).attach(joined)
        if joined.attachment.mode is AttachMode.DIRECT:
            _warn_of_missed(attached)
        return attached

    def _without_request(self, record: EndpointRecord) -> EndpointRecord:
        """Return a record that asks for no address because of its key, nor for a MAC that another endpoint has."""
        found = self.store.endpoints_with_mac(record.attachment.network, record.mac) if record.mac else ()
        is_taken = any(endpoint_id != record.id for endpoint_id in found)
        return without_request(record, keeps_mac=not is_taken)

    def _attacher(self, record: EndpointRecord) -> Attacher:
        return self.attachers[record.attachment.mode]


def _warn_of_missed(record: EndpointRecord) -> None:
    """Log that an endpoint has not the addresses of the last container with its key."""
    sticky = record.attachment.sticky
    if sticky is not None and record.missed_addresses:
        log.warning(
            "endpoint.address_not_kept", key=sticky.key, last=record.missed_addresses, addresses=record.addresses
        )


def _refuse_other(record: EndpointRecord, request: CreateEndpoint) -> None:
    """Refuse a repeated CreateEndpoint with the ID of another network, or of an endpoint that is being torn down."""
    if record.network_id != request.network_id:
        raise Refused(f"endpoint {record.id} already exists, on network {record.network_id}")
    if not record.phase.is_attached:
        raise Refused(f"endpoint {record.id} already exists and is being torn down")
