# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates records for endpoints that Docker has and the daemon has lost.

So DEL is possible when Docker deletes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.core.engine_facts import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import BridgeError, EngineUnavailable
from cnm_bridge.core.link.endpoint_replies import given_addresses
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.lists.guard import without_gateway
from cnm_bridge.core.naming import STAGING_IFNAME, alternative_name, pin_path, staging_path
from cnm_bridge.core.planning.new_records import rebuilt_record
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.recovery.engine_diff import lacks_sandbox
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """Makes another record for an endpoint whose own was lost; see `rebuilt_record`."""

    kernel: Kernel
    run_dir: Path
    boot_id: str

    def has_left_something(self, endpoint_id: EndpointId) -> bool:
        """Return whether an endpoint without a record has a namespace of ours."""
        attachment_id = AttachmentId(endpoint_id)
        paths = pin_path(self.run_dir, attachment_id), staging_path(self.run_dir, attachment_id)
        return any(map(self.kernel.is_namespace, paths))

    async def make(
        self,
        endpoint_id: EndpointId,
        *,
        network_id: NetworkId,
        phase: Phase,
        internal: bool,
        configuration: NetworkConfigurationList,
        addresses: Sequence[str],
        mac: str | None = None,
        sandbox_key: str | None = None,
    ) -> EndpointRecord:
        """Return the record, which is not stored; the attachment has the endpoint's ID.

        The addresses of the link in the pinned sandbox count, if it is there: in mode *direct* Docker knows none.

        Raises:
            KernelError: The sandbox cannot be read.
        """
        attachment_id = AttachmentId(endpoint_id)
        pin, altname = pin_path(self.run_dir, attachment_id), alternative_name(attachment_id)
        pinned_link = None
        if self.kernel.is_namespace(pin):
            name = await self.kernel.pin(pin, STAGING_IFNAME, altname).find(mac)
            found = await self.kernel.link_in_sandbox(pin, altname).look() if name is not None else None
            addresses = (tuple(map(str, given_addresses(found))) if found is not None else ()) or addresses
            pinned_link = name or STAGING_IFNAME  # most links have that name
        return rebuilt_record(
            endpoint_id,
            network_id=network_id,
            phase=phase,
            internal=internal,
            configuration=configuration,
            addresses=addresses,
            mac=mac,
            run_dir=self.run_dir,
            boot_id=self.boot_id,
            pinned_link=pinned_link,
            sandbox_key=sandbox_key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildEndpoint:
    """Creates the record of an endpoint from the engine's data and the current configuration.

    The record is sufficient for DEL: plugins find reservations, masquerading and firewall rules by the endpoint's ID
    and by its addresses, taken from its link in the pinned sandbox, or from Docker.
    """

    store: Store
    planner: EndpointPlanner
    engine: Engine
    engine_import: EngineImport
    locks: KeyedLocks[EndpointId]
    lost_records: LostRecords
    _without_sandbox: dict[EndpointId, EngineEndpoint] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.store.when_removed(self._forget)

    def may_help(self, endpoint: EngineEndpoint) -> bool:
        """Return whether an endpoint has no record, or the engine may know the sandbox that its record lacks.

        An engine that has answered without a sandbox is asked again if it lists the endpoint with other values.
        """
        endpoint_id = EndpointId(endpoint.id)
        return self.store.find_endpoint(endpoint_id) is None or self._without_sandbox.get(endpoint_id) != endpoint

    def ask_again(self) -> None:
        """Forget which sandboxes the engine did not know, because it has been started again."""
        self._without_sandbox.clear()

    def _forget(self, endpoint_id: EndpointId) -> None:
        self._without_sandbox.pop(endpoint_id, None)

    async def ask_engine(self, network_id: NetworkId, endpoint_id: EndpointId) -> None:
        """Rebuild an endpoint that is leaving its sandbox without a record, if the engine has it.

        It is asked only if the network is unknown too, or something of the endpoint is left: Docker also lets endpoints
        leave whose attachment has failed and is undone. One with a DHCP client identifier has another ID and is not
        found. The sandbox stays unknown: the engine does not describe a container while it waits for a call about it.
        Errors are logged, and the caller continues without a record.
        """
        if self.store.find_endpoint(endpoint_id) is not None:
            return
        if self.store.find_network(network_id) is not None and not self.lost_records.has_left_something(endpoint_id):
            return
        try:
            network = await self.engine_import.ask(network_id)
            endpoint = network.endpoints.get(endpoint_id) if network is not None else None
            if network is not None and endpoint is not None:
                await self._rebuild(network, endpoint, None)
        except (BridgeError, CniError, KernelError, StateError) as exc:
            log.warning("endpoint.not_rebuilt", endpoint_id=endpoint_id, error=str(exc))

    async def __call__(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        """Store a record of `endpoint` in phase JOINED, or the sandbox of its record if only that is unknown.

        Raises:
            Refused: The network has no record.
            CniError: The network's configuration does not exist or does not fit its plugins.
            KernelError: Its pinned sandbox cannot be read.
            StateError: The record cannot be written.
        """
        endpoint_id, sandbox, has_answered = EndpointId(endpoint.id), None, True
        try:
            sandbox = await self._find_sandbox(endpoint)
        except EngineUnavailable as exc:
            log.info("endpoint.sandbox_unknown", endpoint_id=endpoint_id, reason=str(exc))
            has_answered = False
        if self.store.find_endpoint(endpoint_id) is None:
            await self._rebuild(network, endpoint, sandbox)
        elif sandbox is not None:
            await self._add_sandbox(endpoint_id, sandbox)
        if sandbox is None and has_answered and self.store.find_endpoint(endpoint_id) is not None:
            self._without_sandbox[endpoint_id] = endpoint

    async def _find_sandbox(self, endpoint: EngineEndpoint) -> str | None:
        """Return the sandbox of an endpoint, None if it is not known. No lock is held: the engine may be in a call.

        Raises:
            EngineUnavailable: The engine does not answer.
        """
        if endpoint.container_id is None:
            return None
        return await self.engine.find_sandbox(endpoint.container_id, endpoint.id)

    async def _add_sandbox(self, endpoint_id: EndpointId, sandbox: str) -> None:
        async with self.locks.hold(endpoint_id):
            record = self.store.find_endpoint(endpoint_id)
            if record is not None and lacks_sandbox(record):
                await self.store.put_endpoint(replace(record, sandbox_key=sandbox))

    async def _rebuild(self, network: EngineNetwork, endpoint: EngineEndpoint, sandbox: str | None) -> None:
        endpoint_id = EndpointId(endpoint.id)
        record, configuration = await self.planner.resolve(NetworkId(network.id))
        async with self.locks.hold(endpoint_id):
            if self.store.find_endpoint(endpoint_id) is None:
                known = tuple(str(address) for address in (endpoint.address, endpoint.address_ipv6) if address)
                rebuilt = await self.lost_records.make(
                    endpoint_id,
                    network_id=record.id,
                    phase=Phase.JOINED,
                    internal=without_gateway(configuration, internal=record.internal),
                    configuration=configuration,
                    addresses=known,
                    mac=endpoint.mac,
                    sandbox_key=sandbox,
                )
                await self.store.put_found_endpoint(rebuilt)
                log.warning("endpoint.rebuilt", endpoint_id=endpoint_id, container=endpoint.name)
