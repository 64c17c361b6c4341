# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes CreateEndpoint: stores the record, lets the attacher run the plugins, and undoes a failure.

If the plugins refuse an address or port that an endpoint with a pending teardown holds, they run again after that
teardown, within a time limit (`cnm_bridge.teardown.contention`).
"""

import time

import structlog

from cni_bridge_state import AttachmentId, EndpointRecord, ProcessRecord, StateError, Store
from cni_invoker import CniError, PluginFailed
from cnm_bridge.attach.attacher import Attachers
from cnm_bridge.attach.new_records import NewRecords
from cnm_bridge.kernel import KernelError
from cnm_bridge.networks.service import NetworkService
from cnm_bridge.planning.plan import Plan
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.contention import Contention, ContentionResolver
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.wire import CreateEndpoint

__all__ = ["EndpointCreation"]

log = structlog.get_logger()


class EndpointCreation:
    """Creates endpoints.

    Args:
        store: The records.
        networks: Plans the plugins' input.
        attachers: The attacher of each mode.
        teardowns: Undoes failures.
        owners: Knows the owner of each address.
        contention: Waits for endpoints that are being deleted, and evicts dead ones.
        new_records: Makes the first record of an endpoint.
    """

    def __init__(
        self,
        *,
        store: Store,
        networks: NetworkService,
        attachers: Attachers,
        teardowns: TeardownQueue,
        owners: AddressOwners,
        contention: ContentionResolver,
        new_records: NewRecords,
    ) -> None:
        self._store = store
        self._networks = networks
        self._attachers = attachers
        self._teardowns = teardowns
        self._owners = owners
        self._contention = contention
        self._new_records = new_records
        self._attachments: KeyedLocks[AttachmentId] = KeyedLocks()  # several endpoints may want the same one

    async def __call__(self, request: CreateEndpoint, caller: ProcessRecord | None) -> EndpointRecord:
        """Create an endpoint that does not exist; return its record. The caller holds its lock.

        After an error nothing is left of the endpoint; if the cleanup also failed, it continues in the background.

        Args:
            request: The request.
            caller: The calling process, None if it is not visible.

        Raises:
            BadOption, Refused: The request is invalid or not possible; nothing has been changed.
            CniError: The network's configuration does not exist, or a plugin failed; the text is the plugin's.
            KernelError: The link cannot be moved out of the staging namespace.
            StateError: The record cannot be written.
        """
        # The plan is made before anything is stored or done, so an invalid request changes nothing.
        network, plan = await self._networks.plan(request)
        record = self._new_records.planned(request, network, plan, caller, now_s=time.time())
        contention = self._contention.begin(plan.configuration.name)
        async with self._attachments.hold(record.attachment_id):
            return await self._create(record, plan, contention)

    async def _create(self, record: EndpointRecord, plan: Plan, contention: Contention) -> EndpointRecord:
        while True:
            await contention.wait_for_attachment(record.attachment_id)
            await contention.wait_for_addresses(plan.fixed_addresses)
            contention.note_leaving()
            try:
                # No await since the wait: no teardown begins unseen. Between two attempts there is no claim, so that
                # the DEL of an endpoint with the same address can complete.
                with self._owners.claim(record.id, plan.fixed_addresses, plan.configuration):
                    return await self._prepare_or_undo(record, plan)
            except PluginFailed as exc:
                await contention.wait_or_raise(exc, record.id)

    async def _prepare_or_undo(self, record: EndpointRecord, plan: Plan) -> EndpointRecord:
        await self._store.put_endpoint(record)
        attacher = self._attachers[record.attach_mode]
        try:
            record = await attacher.prepare(record, plan, self._store.put_endpoint)
        except Exception:
            try:
                await self._teardowns.undo(self._store.find_endpoint(record.id) or record)
            except (CniError, KernelError, StateError) as exc:  # the first error is what the user must see
                log.warning("endpoint.teardown_pending", error=str(exc))
            raise
        log.info("endpoint.created", configuration=plan.configuration.name, mode=record.attach_mode.value)
        return record
