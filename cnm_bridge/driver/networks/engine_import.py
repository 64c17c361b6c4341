# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Imports networks that Docker has and that have no record, because the state was lost or an older copy restored."""

from dataclasses import dataclass, field, replace

import structlog

from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import EngineNetwork
from cnm_bridge.core.errors import BridgeError, EngineUnavailable
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineImport:
    """Makes records of networks from the engine's description."""

    store: Store
    engine: Engine
    locks: KeyedLocks[NetworkId]
    _refused: dict[NetworkId, str] = field(default_factory=dict, init=False)

    async def find(self, network_id: NetworkId) -> NetworkRecord | None:
        """Import a network that a call of Docker names; return None if the engine does not know it or does not answer.

        Raises:
            StateError: The record cannot be written.
        """
        network = await self.ask(network_id)
        return None if network is None else await self.keep(network, self.store.engine_identity())

    async def ask(self, network_id: NetworkId) -> EngineNetwork | None:
        """Return the engine's description of a network; None if the engine does not know it or does not answer.

        An engine that knows a network of our callers is the calling engine, so its identity is stored.

        Raises:
            StateError: The identity cannot be written.
        """
        try:
            network = await self.engine.find_network(network_id)
            identity = await self.engine.identity() if network is not None else None
        except EngineUnavailable as exc:
            log.warning("network.not_imported", network_id=network_id, error=str(exc))
            return None
        if identity is not None and identity != self.store.engine_identity():
            await self.store.put_engine_identity(identity)
        return network

    async def keep(self, network: EngineNetwork, engine: str | None) -> NetworkRecord | None:
        """Store a network as an engine describes it; return None, and log why, if that is not possible.

        A network that is stored already only receives its name, if that was unknown, and the engine's ID.

        Raises:
            StateError: The record cannot be written.
        """
        network_id = NetworkId(network.id)
        known = self.store.find_network(network_id)
        if known is not None and known.name is not None and known.engine == engine:
            return known
        async with self.locks.hold(network_id):
            record = self.store.find_network(network_id)
            if record is not None:  # CreateNetwork asks for the name only if it selects the configuration
                record = replace(record, name=record.name or network.name, engine=engine)
                await self.store.put_network(record)
                return record
            try:
                configuration = parse_options(network.options).configuration_name
            except BridgeError as exc:
                if self._refused.get(network_id) != str(exc):  # each round finds it again
                    self._refused[network_id] = str(exc)
                    log.warning("network.not_imported", network_id=network_id, error=str(exc))
                return None
            record = NetworkRecord(
                id=network_id,
                configuration=configuration,
                name=network.name,
                internal=network.internal,
                options=network.options,
                pools=network.pools,
                engine=engine,
            )
            await self.store.put_network(record)
            log.warning("network.imported", network_id=network_id, name=network.name, configuration=configuration)
        return record
