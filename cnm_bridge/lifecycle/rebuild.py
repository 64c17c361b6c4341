# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Endpoints that Docker has and we have no record of: their containers run, and their tear down is owed one day."""

from pathlib import Path

import structlog

from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.engine import EngineEndpoint, EngineNetwork
from cnm_bridge.errors import BridgeError
from cnm_bridge.lifecycle.locks import KeyedLocks
from cnm_bridge.lifecycle.lost_networks import LostNetworks
from cnm_bridge.lifecycle.naming import STAGING_IFNAME, staging_path
from cnm_bridge.lifecycle.networks import Networks
from spec import JsonObject
from state import (
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
    StateError,
    Store,
)

__all__ = ["RebuildEndpoint"]

log = structlog.get_logger()


class RebuildEndpoint:
    """Makes a record of an endpoint from what the engine tells of it and from the configuration as it is now.

    It is enough for a DEL that finds reservations, masquerading and firewall rules: they are known by the
    endpoint's ID, and by the addresses that Docker still has.

    Args:
        store: The records.
        networks: Tells what a network is bound to.
        lost: Asks the engine for networks.
        locks: The locks of endpoints.
        run_dir: Below it are the staging namespaces.
        boot_id: The kernel's boot ID.
    """

    def __init__(
        self,
        *,
        store: Store,
        networks: Networks,
        lost: LostNetworks,
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

        What stands against it is logged: the caller goes on without the record.
        """
        if self._store.find_network(network_id) is not None:
            return
        try:
            network = await self._lost.ask(network_id)
            endpoint = network.endpoints.get(endpoint_id) if network is not None else None
            if network is not None and endpoint is not None:
                await self(network, endpoint)
        except (BridgeError, CniError, StateError) as exc:
            log.warning("endpoint.not_rebuilt", endpoint_id=endpoint_id, error=str(exc))

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
                await self._store.adopt_endpoint(self._record(record, configuration, endpoint))
                log.warning("endpoint.rebuilt", endpoint_id=endpoint_id, container=endpoint.name)

    def _record(
        self, network: NetworkRecord, configuration: NetworkConfigurationList, endpoint: EngineEndpoint
    ) -> EndpointRecord:
        staging = str(staging_path(self._run_dir, EndpointId(endpoint.id)))
        return EndpointRecord(
            id=EndpointId(endpoint.id),
            network_id=network.id,
            phase=Phase.JOINED,
            boot_id=self._boot_id,
            internal=network.internal,
            requested=RequestedInterface(),
            attachment=AttachmentRecord(
                ifname=STAGING_IFNAME,
                netns=staging,
                configuration=configuration.document,
                cni_version=configuration.cni_version,
                args=(),
                capability_args={},
            ),
            answered=len(configuration.plugins),
            result=_result(endpoint, staging),
        )


def _result(endpoint: EngineEndpoint, staging: str) -> JsonObject:
    """Return what the plugins must have said, as far as Docker remembers it."""
    addresses = [address for address in (endpoint.address, endpoint.address_ipv6) if address is not None]
    interface = {"name": STAGING_IFNAME, "sandbox": staging, **({"mac": endpoint.mac} if endpoint.mac else {})}
    return {
        "cniVersion": "1.0.0",
        "interfaces": [interface],
        "ips": [{"address": str(address), "interface": 0} for address in addresses],
        "dns": {},
    }
