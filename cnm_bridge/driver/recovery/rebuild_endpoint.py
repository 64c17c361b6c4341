# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates records for endpoints that Docker has and the daemon has lost, so that their DEL is possible."""

from dataclasses import dataclass
from pathlib import Path

import structlog

from cni_bridge_state import AttachmentId, EndpointId, NetworkId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import STAGING_IFNAME, alternative_name, pin_path
from cnm_bridge.core.engine_facts.network import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link.endpoint_replies import given_addresses
from cnm_bridge.core.lists.guard import without_gateway
from cnm_bridge.core.planning.records import rebuilt_record
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, is_namespace
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


async def find_pinned_link(
    kernel: Kernel, run_dir: Path, endpoint_id: EndpointId, mac: str | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the name and the addresses of the link of an endpoint without a record in its pinned sandbox.

    The name is None if the sandbox is not pinned. In mode *direct* Docker does not know these addresses. Raises
    `KernelError` if the sandbox cannot be read.
    """
    attachment_id = AttachmentId(endpoint_id)
    pin, altname = pin_path(run_dir, attachment_id), alternative_name(attachment_id)
    if not is_namespace(pin):
        return None, ()
    name = await kernel.pin(pin, STAGING_IFNAME, altname).find(mac)
    found = await kernel.link_in_sandbox(pin, altname).look() if name is not None else None
    # most links have that name
    return name or STAGING_IFNAME, tuple(map(str, given_addresses(found))) if found is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildEndpoint:
    """Creates the record of an endpoint from the engine's data and the current configuration.

    The record is sufficient for DEL: plugins find reservations, masquerading and firewall rules by the endpoint's ID
    and by its addresses, taken from its link in the pinned sandbox, or from Docker.
    """

    store: Store
    planner: EndpointPlanner
    engine: Engine
    locks: KeyedLocks[EndpointId]
    kernel: Kernel
    run_dir: Path
    boot_id: str

    async def __call__(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        """Store a record of `endpoint` in phase JOINED.

        Raises:
            EngineUnavailable: The engine does not answer.
            Refused: The engine does not know its sandbox, or the network has no record.
            CniError: The network's configuration does not exist or does not fit its plugins.
            KernelError: Its pinned sandbox cannot be read.
        """
        sandbox = None
        if endpoint.container_id is not None:
            sandbox = await self.engine.find_sandbox(endpoint.container_id, endpoint.id)
        if sandbox is None:
            raise Refused(f"the engine does not know the sandbox of container {endpoint.name}")
        endpoint_id = EndpointId(endpoint.id)
        record, configuration = await self.planner.resolve(NetworkId(network.id))
        async with self.locks.hold(endpoint_id):
            if self.store.find_endpoint(endpoint_id) is None:
                known = tuple(str(address) for address in (endpoint.address, endpoint.address_ipv6) if address)
                link, addresses = await find_pinned_link(self.kernel, self.run_dir, endpoint_id, endpoint.mac)
                rebuilt = rebuilt_record(
                    endpoint_id,
                    network_id=record.id,
                    phase=Phase.JOINED,
                    internal=without_gateway(configuration, internal=record.internal),
                    configuration=configuration,
                    addresses=addresses or known,
                    mac=endpoint.mac,
                    run_dir=self.run_dir,
                    boot_id=self.boot_id,
                    pinned_link=link,
                    sandbox_key=sandbox,
                )
                await self.store.put_found_endpoint(rebuilt)
                log.warning("endpoint.rebuilt", endpoint_id=endpoint_id, container=endpoint.name)
