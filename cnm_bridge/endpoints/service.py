# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The life of an endpoint: create, join, leave, delete. Each is a straight line under the endpoint's lock."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from cni_invoker import CniError, PluginFailed, Result, Runtime
from cnm_bridge.endpoints.port_publisher import PortPublisher
from cnm_bridge.endpoints.sandbox_sync import SandboxSync
from cnm_bridge.errors import Refused
from cnm_bridge.kernel import Kernel, KernelError, LinkMissing, NotCarriable, Snapshot
from cnm_bridge.model.attachment import cni_attachment
from cnm_bridge.model.caller import ENGINE_PID
from cnm_bridge.model.naming import STAGING_IFNAME, alternative_name, host_link_name, staging_path
from cnm_bridge.networks.service import NetworkService
from cnm_bridge.planning.join_response import choose_interface, describe_join, with_addresses
from cnm_bridge.planning.plan import Plan, refuse_ignored, with_sysctls
from cnm_bridge.planning.plugin_support import choose_observation, describe_uncarriable, has_device
from cnm_bridge.recovery.adopt import AdoptEndpoint
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.contention import ContentionResolver
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.wire import (
    ChosenInterface,
    CreateEndpoint,
    EndpointReference,
    Join,
    Joined,
)
from spec import find_object
from state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkRecord,
    Phase,
    ProcessRecord,
    StateError,
    Store,
    WrongPhase,
)

__all__ = ["EndpointService"]

log = structlog.get_logger()

_NO_GATEWAY: Final = "no port is published (-p, -P) if no other network has a default route (before Engine 28: of IPv4)"


class EndpointService:
    """Creates, hands over, takes back and deletes endpoints.

    Every call may be repeated with the same ID and gives the same answer.

    Args:
        store: The records.
        networks: Tells what a network is bound to.
        runtime: Runs the plugins.
        kernel: Moves the links.
        sandbox_sync: Brings into sandboxes what Docker cannot be told.
        teardowns: Tears down, in the background too.
        owners: Knows whose the addresses are.
        contention: Waits for endpoints that are being deleted, and ends dead ones.
        adopt: Finds endpoints whose records were lost.
        port_publisher: Has plugins at work that must not keep an endpoint that leaves.
        locks: The locks of endpoints.
        run_dir: Below it are the staging namespaces.
        boot_id: The kernel's boot ID.
    """

    def __init__(
        self,
        *,
        store: Store,
        networks: NetworkService,
        runtime: Runtime,
        kernel: Kernel,
        sandbox_sync: SandboxSync,
        teardowns: TeardownQueue,
        owners: AddressOwners,
        contention: ContentionResolver,
        adopt: AdoptEndpoint,
        port_publisher: PortPublisher,
        locks: KeyedLocks[EndpointId],
        run_dir: Path,
        boot_id: str,
    ) -> None:
        self._store = store
        self._networks = networks
        self._runtime = runtime
        self._kernel = kernel
        self._owners = owners
        self._sandbox_sync = sandbox_sync
        self._teardowns = teardowns
        self._contention = contention
        self._adopt = adopt
        self._port_publisher = port_publisher
        self._locks = locks
        self._run_dir = run_dir
        self._boot_id = boot_id

    async def create(self, request: CreateEndpoint) -> ChosenInterface:
        """Attach an endpoint and answer what Docker did not choose itself.

        When it raises, nothing is left of the endpoint; if cleaning up failed as well, it goes on in the background.

        Raises:
            BadOption, Refused: The request asks for what is not possible; nothing has been tried.
            CniError: The network's configuration is not there, or a plugin failed: its own message.
            KernelError: The link cannot be taken out of the staging namespace.
            StateError: The record cannot be written.
        """
        async with self._locks.hold(request.endpoint_id):
            record = self._store.find_endpoint(request.endpoint_id)
            if record is None:
                # Nothing is stored or done before this: what it finds wrong changes nothing.
                network, plan = await self._networks.plan(request)
                record = self._intend(request, network, plan)
                snapshot = await self._attach_when_free(record, plan)
            else:
                snapshot = _made_before(record, request)
            return choose_interface(snapshot, record.requested)

    async def join(self, request: Join) -> Joined:
        """Hand an endpoint over to a sandbox.

        Raises:
            RecordNotFound, WrongPhase: There is no attached endpoint of that ID.
        """
        async with self._locks.hold(request.endpoint_id):
            record = self._store.get_endpoint(request.endpoint_id)
            snapshot = _snapshot(record)
            # behind a proxy that forks for each connection no caller lives as long as the engine
            caller = record.caller if record.caller == self._find_caller() else None
            joined = replace(record, phase=Phase.JOINED, sandbox_key=request.sandbox_key, caller=caller)
            await self._store.put_endpoint(joined)
            self._sandbox_sync.join(joined)
            answer = describe_join(
                snapshot, host_link_name(record.attachment_id), prefix=record.ifname_prefix, internal=record.internal
            )
            if request.has_ports and answer.gateway is None:
                log.info("endpoint.no_gateway", consequence=_NO_GATEWAY)
            return answer

    async def oper_info(self, request: EndpointReference) -> None:
        """Settle an endpoint whose link may have been placed; what goes wrong is logged.

        The engine asks about endpoints several times while a container starts; before 28.1 an error is fatal to it.
        """
        try:
            await self._sandbox_sync.settle(request.endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.not_settled", error=str(exc))

    async def leave(self, request: EndpointReference) -> None:
        """Take an endpoint back from its sandbox; one that was not joined, or is not known, has left already.

        The link is still inside when this is called; libnetwork moves it back to the host namespace afterwards.
        """
        self._sandbox_sync.forget(request.endpoint_id)
        self._port_publisher.interrupt(request.endpoint_id)
        await self._adopt.find(request.network_id, request.endpoint_id)
        async with self._locks.hold(request.endpoint_id):
            record = self._store.find_endpoint(request.endpoint_id)
            if record is not None and record.phase is Phase.JOINED:
                await self._sandbox_sync.withdraw(record)
                await self._store.put_endpoint(replace(record, phase=Phase.READY))

    async def delete(self, request: EndpointReference) -> None:
        """Have an endpoint torn down, whether it was joined, left or neither; an unknown one is gone already.

        That goes on in the background (docs/decisions, 13): when this returns, it is on disk that it must be done. But
        a device of the host is waited for, unless its plugins fail: meanwhile somebody else could find it there under
        the endpoint's name.

        Raises:
            StateError: It is not on disk; it goes on all the same.
        """
        self._sandbox_sync.forget(request.endpoint_id)
        self._port_publisher.interrupt(request.endpoint_id)
        try:
            await self._teardowns.request(request.endpoint_id)
        finally:
            record = self._store.find_endpoint(request.endpoint_id)
            if record is not None and has_device(record):
                await self._teardowns.wait_tried([record.id])

    def _intend(self, request: CreateEndpoint, network: NetworkRecord, plan: Plan) -> EndpointRecord:
        """Return the record that is written before anything is done."""
        attachment_id = AttachmentId(request.endpoint_id)
        return EndpointRecord(
            id=request.endpoint_id,
            network_id=request.network_id,
            phase=Phase.PENDING,
            boot_id=self._boot_id,
            internal=network.internal,
            requested=request.requested,
            attachment=AttachmentRecord(
                id=attachment_id,
                ifname=STAGING_IFNAME,
                netns=str(staging_path(self._run_dir, attachment_id)),
                configuration=plan.configuration.document,
                cni_version=plan.configuration.cni_version,
                args=plan.args,
                capability_args=plan.capability_args,
            ),
            ifname_prefix=plan.ifname_prefix,
            caller=self._find_caller(),
        )

    def _find_caller(self) -> ProcessRecord | None:
        """Return the process that makes the call; from the end of one that is not known nothing is concluded."""
        pid = ENGINE_PID.get()
        if pid == 0:  # which has been said
            return None
        try:
            started = self._kernel.find_start(pid)
        except KernelError as exc:
            log.warning("caller.unknown", error=str(exc))
            return None
        if started is None:
            log.warning("caller.unknown", error=f"there is no process {pid}")
            return None
        return ProcessRecord(pid=pid, started=started)

    async def _attach_when_free(self, record: EndpointRecord, plan: Plan) -> Snapshot:
        """Attach an endpoint, once more whenever what it may need has left another endpoint, within a limited time."""
        contention = self._contention.begin(plan.configuration.name)
        while True:
            await contention.wait_for_addresses(plan.fixed_addresses)
            contention.look()
            try:
                # No await since the wait: no tear down begins unseen. Between two attempts there is no claim, so that
                # the DEL of an endpoint with the same address can complete.
                with self._owners.claim(record.id, plan.fixed_addresses, plan.configuration):
                    return await self._attach_or_undo(record, plan)
            except PluginFailed as exc:
                is_refusal = exc.exit_status is not None and self._store.find_endpoint(record.id) is None
                if is_refusal and await contention.wait_for_room():
                    continue
                leaving = contention.describe_leaving() if is_refusal else ""
                if not leaving:
                    raise
                raise Refused(f"{exc}; {leaving}") from exc

    async def _attach_or_undo(self, record: EndpointRecord, plan: Plan) -> Snapshot:
        await self._store.put_endpoint(record)
        try:
            return await self._attach(record, plan)
        except Exception:
            try:
                await self._teardowns.undo(self._store.find_endpoint(record.id) or record)
            except (CniError, KernelError, StateError) as exc:  # the first error is what the user must see
                log.warning("endpoint.tear_down_owed", error=str(exc))
            raise

    async def _attach(self, record: EndpointRecord, plan: Plan) -> Snapshot:
        """Run the plugins and take the link out.

        Each plugin's result is stored before anything else happens: `firewall` does not remove its rules without it,
        and the addresses, by which others find theirs, are gone from the link once it moves.
        """
        configuration = plan.configuration
        staging = Path(record.attachment.netns)

        async def remember(result: Result) -> None:
            nonlocal record
            record = with_addresses(replace(record, added_plugins=record.added_plugins + 1, result=result.document))
            await self._store.put_endpoint(record)

        ifname = record.attachment.ifname
        baseline = await self._kernel.create_staging(staging, ifname, choose_observation(configuration, ifname))
        await self._runtime.add(configuration, cni_attachment(record), on_result=remember)
        unused = find_object(record.result or {}, "dns") or {}
        if any(unused.values()):  # no driver can tell Docker of name servers
            log.warning("endpoint.dns_unused", configuration=configuration.name, dns=unused)
        try:
            snapshot = await self._kernel.take_out(
                staging,
                ifname,
                host_name=host_link_name(record.attachment_id),
                altname=alternative_name(record.attachment_id),
                baseline=baseline,
            )
        except NotCarriable as exc:
            raise Refused(describe_uncarriable(configuration, exc)) from exc
        except LinkMissing as exc:
            raise Refused(
                f"CNI configuration {configuration.name} made no link for the container, there is only "
                f"{', '.join(exc.existing)}; it needs a plugin that makes one, such as bridge, ptp or macvlan"
            ) from exc
        refuse_ignored(plan, snapshot)
        snapshot = with_sysctls(plan, snapshot)
        await self._store.put_endpoint(with_addresses(replace(record, phase=Phase.READY, snapshot=snapshot.to_json())))
        log.info("endpoint.created", configuration=configuration.name)
        return snapshot


def _snapshot(record: EndpointRecord) -> Snapshot:
    if record.snapshot is None or not record.phase.is_attached:
        raise WrongPhase(record.id, record.phase, Phase.JOINED)
    return Snapshot.from_json(record.snapshot)


def _made_before(record: EndpointRecord, request: CreateEndpoint) -> Snapshot:
    """Return the snapshot of an endpoint that is asked for again."""
    if record.network_id != request.network_id:
        raise Refused(f"endpoint {record.id} exists already, on network {record.network_id}")
    if not record.phase.is_attached:
        raise Refused(f"endpoint {record.id} exists already, and is being torn down")
    return _snapshot(record)
