# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Learns of networks from the engine: their names, and those without a record, as after a loss of the state.

CreateNetwork does not contain the name of a network, which selects its list if there is no `-o cni.network`. The engine
knows it only after the reply, so it is asked in the background.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import BridgeError, EngineUnavailable, Refused, network_option
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.retries import Retries, Retry
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EngineImport:
    """Makes records of networks from the engine's description. Each method raises `StateError` if it cannot store."""

    store: Store
    engine: Engine
    locks: KeyedLocks[NetworkId]
    _refused: dict[NetworkId, str] = field(default_factory=dict, init=False)

    async def find(self, network_id: NetworkId) -> NetworkRecord | None:
        """Import a network that a call of Docker names; return None as `ask`."""
        network = await self.ask(network_id)
        return None if network is None else await self.keep(network, self.store.engine_identity())

    async def ask(self, network_id: NetworkId) -> EngineNetwork | None:
        """Return the engine's description of a network; None if the engine does not know it or does not answer.

        An engine that knows a network of our callers is the calling engine, so its identity is stored.
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
                configuration = parse_options(network.options).configuration
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


class _Questions(Retries[NetworkId, Retry[NetworkId]]):
    first_pause_s = 0.01
    """`docker network create` returns about this long after CreateNetwork; `docker run` may be the next command."""
    longest_pause_s = 10.0

    def __init__(self) -> None:
        super().__init__(lambda network_id: Retry(key=network_id))


@dataclass(slots=True)
class NetworkNameResolver:
    """Learns and stores the names of networks that use the configuration of their own name."""

    store: Store
    engine: Engine
    locks: KeyedLocks[NetworkId]
    patience_s: float
    """Time limit of `wait`."""
    _questions: _Questions = field(default_factory=_Questions, init=False)

    def learn(self, network_id: NetworkId) -> None:
        """Request the name of a network in the background; does not block."""
        self._questions.add(network_id)

    async def wait(self, network_id: NetworkId) -> str:
        """Return a network's name as soon as it is stored; `Refused` if it is not known in time."""
        questions = self._questions.find([network_id])
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self._questions.wait_until_each(questions, lambda question: question.is_done)
        record = self.store.find_network(network_id)
        if record is None or record.name is None:
            answers = (question.error for question in questions if question.error is not None)
            why = next(answers, "the Docker Engine does not know the network")
            raise Refused(
                f"network {network_id} is not bound to a CNI configuration yet: it was made without -o cni.network, "
                f"and its name could not be learned ({why}); check --docker-host, "
                f"or make the network with {network_option('cni.network', 'NAME')}"
            )
        return record.name

    async def run(self) -> None:
        """Learn names until cancelled. Then it can be called again, and continues with all of them."""
        for network in self.store.networks():
            if network.configuration is None and network.name is None:
                self.learn(network.id)
        await self._questions.run(self._ask)

    async def _ask(self, question: Retry[NetworkId]) -> bool:
        """Return whether nothing is left to do, because the name is stored or the network was removed."""
        network_id = question.key
        if self.store.find_network(network_id) is None:
            return True
        try:
            name = await self.engine.network_name(network_id)
        except EngineUnavailable as exc:
            if question.error is None:  # logged once, because a booting dockerd is asked often
                log.warning("network.name_unknown", network_id=network_id, error=str(exc))
            question.fail(str(exc))
            return False
        if name is None:
            return False
        async with self.locks.hold(network_id):
            record = self.store.find_network(network_id)
            if record is not None:
                await self.store.put_network(replace(record, name=name))
                log.info("network.named", network_id=network_id, name=name)
        return True
