# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes CreateEndpoint: stores the record, and lets the attacher run the plugins.

`cnm_bridge.driver.endpoints.attempts` undoes a failure, and repeats it after a refusal that may pass.
"""

import time
from functools import partial

import structlog

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.new_records import NewRecords
from cnm_bridge.driver.endpoints.attempts import Attempts
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.contention import Contention
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

__all__ = ["EndpointCreation"]

log = structlog.get_logger()


class EndpointCreation:
    """Creates endpoints.

    Args:
        store: The records.
        networks: Plans the plugins' input.
        attachers: The attacher of each mode.
        attempts: Runs the plugins, and undoes failures.
        owners: Knows the owner of each address.
        locks: The locks of endpoints.
        new_records: Makes the first record of an endpoint.
    """

    def __init__(
        self,
        *,
        store: Store,
        networks: NetworkService,
        attachers: Attachers,
        attempts: Attempts,
        owners: AddressOwners,
        locks: KeyedLocks[EndpointId],
        new_records: NewRecords,
    ) -> None:
        self._store = store
        self._networks = networks
        self._attachers = attachers
        self._attempts = attempts
        self._owners = owners
        self._locks = locks
        self._new_records = new_records
        self._attachments: KeyedLocks[AttachmentId] = KeyedLocks()  # several endpoints may want the same one

    async def __call__(self, request: CreateEndpoint, caller: ProcessRecord | None) -> EndpointRecord:
        """Create an endpoint, if it does not exist; return its record.

        After an error nothing is left of the endpoint; if the cleanup takes long or fails, it continues in the
        background.

        Args:
            request: The request.
            caller: The calling process, None if it is not visible.

        Raises:
            BadOption, Refused: The request is invalid or not possible, or Docker has deleted the endpoint before its
                plugins ran; nothing has been changed.
            CniError: The network's configuration does not exist, or a plugin failed; the text is the plugin's.
            KernelError: The link cannot be moved out of the staging namespace.
            StateError: The record cannot be written.
        """
        with self._attempts.under_way(request.endpoint_id) as call:
            async with self._locks.hold(request.endpoint_id):
                stored = self._store.find_endpoint(request.endpoint_id)
            if stored is not None:
                return _same(stored, request)
            # The plan is made before anything is stored or done, so an invalid request changes nothing.
            network, plan = await self._networks.plan(request)
            record = self._new_records.planned(request, network, plan, caller, now_s=time.time())
            create = partial(self._create, request, record=record, plan=plan)
            async with self._attachments.hold(record.attachment.id):
                return await self._attempts(call, plan.configuration.name, create)

    async def _create(
        self,
        request: CreateEndpoint,
        stored: EndpointRecord | None,
        contention: Contention,
        *,
        record: EndpointRecord,
        plan: Plan,
    ) -> EndpointRecord:
        if stored is not None:
            return _same(stored, request)
        await contention.wait_for_attachment(record.attachment.id)
        await contention.wait_for_addresses(plan.fixed_addresses)
        contention.note_leaving()
        # No await since the wait: no teardown begins unseen. Between two attempts there is no claim, so that the DEL of
        # an endpoint with the same address can complete.
        with self._owners.claim(record.id, plan.fixed_addresses, plan.configuration):
            await self._store.put_endpoint(record)
            record = await self._attachers[record.attachment.mode].prepare(record, plan, self._store.put_endpoint)
        log.info("endpoint.created", configuration=plan.configuration.name, mode=record.attachment.mode.value)
        return record


def _same(record: EndpointRecord, request: CreateEndpoint) -> EndpointRecord:
    """Return the record of a repeated CreateEndpoint; refuse an ID of another network or that is being torn down."""
    if record.network_id != request.network_id:
        raise Refused(f"endpoint {record.id} already exists, on network {record.network_id}")
    if not record.phase.is_attached:
        raise Refused(f"endpoint {record.id} already exists and is being torn down")
    return record
