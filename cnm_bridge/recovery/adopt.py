# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Adopts endpoints that Docker has and we have no record of: their containers run, and will need a teardown."""

from collections.abc import Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

import structlog

from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.engine import EngineEndpoint, EngineNetwork
from cnm_bridge.errors import BridgeError
from cnm_bridge.model.naming import STAGING_IFNAME, staging_path
from cnm_bridge.networks.engine_import import EngineImport
from cnm_bridge.networks.service import NetworkService
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from spec import JsonObject
from state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    Phase,
    RequestedInterface,
    StateError,
    Store,
)

__all__ = ["AdoptEndpoint", "adopted_endpoint"]

_ANY_PORT: Final[JsonObject] = {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}
"""For DEL only: `portmap` deletes its rules, by container ID, only if it receives at least one port."""

log = structlog.get_logger()


class AdoptEndpoint:
    """Creates a record of an endpoint from the engine's data and the current configuration.

    It is sufficient for a DEL that finds reservations, masquerading and firewall rules by the endpoint's ID and by the
    addresses that Docker still has.

    Args:
        store: The records.
        networks: Knows the configuration of a network.
        lost: Asks the engine for networks.
        locks: The locks of endpoints.
        run_dir: Below it are the staging namespaces.
        boot_id: The kernel's boot ID.
    """

    def __init__(
        self,
        *,
        store: Store,
        networks: NetworkService,
        lost: EngineImport,
        locks: KeyedLocks[EndpointId],
        run_dir: Path,
        boot_id: str,
    ) -> None:
        self._store = store
        self._networks = networks
        self._lost = lost
        self._locks = locks
        self._run_dir = run_dir
        self._boot_id = boot_id

    async def find(self, network_id: NetworkId, endpoint_id: EndpointId) -> None:
        """Ask the engine for an endpoint whose network is unknown as well, and store a record if Docker has it.

        Errors are logged, and the caller continues without the record.
        """
        if self._store.find_network(network_id) is not None:
            return
        try:
            network = await self._lost.ask(network_id)
            endpoint = network.endpoints.get(endpoint_id) if network is not None else None
            if network is not None and endpoint is not None:
                await self(network, endpoint)
        except (BridgeError, CniError, StateError) as exc:
            log.warning("endpoint.not_adopted", endpoint_id=endpoint_id, error=str(exc))

    async def __call__(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        """Store a record of `endpoint`, joined; nothing if there is one by now.

        Raises:
            Refused: Its network is unknown.
            CniError: The configuration of its network is not there, or does not fit its plugins.
            StateError: The record cannot be written.
        """
        endpoint_id = EndpointId(endpoint.id)
        record, configuration = await self._networks.resolve(NetworkId(network.id))
        async with self._locks.hold(endpoint_id):
            if self._store.find_endpoint(endpoint_id) is None:
                addresses = (str(address) for address in (endpoint.address, endpoint.address_ipv6) if address)
                await self._store.adopt_endpoint(
                    adopted_endpoint(
                        endpoint_id,
                        network_id=record.id,
                        phase=Phase.JOINED,
                        internal=record.internal,
                        configuration=configuration,
                        addresses=tuple(addresses),
                        mac=endpoint.mac,
                        run_dir=self._run_dir,
                        boot_id=self._boot_id,
                    )
                )
                log.warning("endpoint.adopted", endpoint_id=endpoint_id, container=endpoint.name)


def adopted_endpoint(
    endpoint_id: EndpointId,
    *,
    network_id: NetworkId,
    phase: Phase,
    internal: bool,
    configuration: NetworkConfigurationList,
    addresses: Sequence[str],
    mac: str | None,
    run_dir: Path,
    boot_id: str,
) -> EndpointRecord:
    """Return a record of an endpoint whose own was lost: enough for a DEL that undoes what its plugins did.

    They know their work by the endpoint's ID and by its addresses.
    """
    attachment_id = AttachmentId(endpoint_id)
    staging = str(staging_path(run_dir, attachment_id))
    result: JsonObject = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": STAGING_IFNAME, "sandbox": staging, **({"mac": mac} if mac else {})}],
        "ips": [{"address": str(ip_interface(address)), "interface": 0} for address in addresses],
        "dns": {},
    }
    return EndpointRecord(
        id=endpoint_id,
        network_id=network_id,
        phase=phase,
        boot_id=boot_id,
        internal=internal,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            id=attachment_id,
            ifname=STAGING_IFNAME,
            netns=staging,
            configuration=configuration.document,
            cni_version=configuration.cni_version,
            args=(),
            capability_args=_ANY_PORT,
        ),
        added_plugins=len(configuration.plugins),
        result=result,
        addresses=tuple(str(ip_interface(address).ip) for address in addresses),
    )
