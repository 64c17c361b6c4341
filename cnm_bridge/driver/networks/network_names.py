# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks the engine for the names of networks, which CreateNetwork does not contain.

A network made without `-o cni.network` uses the network configuration list of its own name. The engine knows the name
only after the reply to CreateNetwork, so it is asked in the background.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable, Refused, network_option
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.retries import Retries, Retry
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


class _Questions(Retries[NetworkId, Retry[NetworkId]]):
    first_pause_s = 0.01
    """`docker network create` returns about this long after CreateNetwork; `docker run` may be the next command."""
    longest_pause_s = 10.0

    def __init__(self) -> None:
        super().__init__(lambda network_id: Retry(key=network_id))


@dataclass(slots=True)
class NetworkNameResolver:
    """Learns and stores the names of networks that use the configuration of their own name.

    Attributes:
        patience_s: Time limit of `wait`, in seconds.
    """

    store: Store
    engine: Engine
    locks: KeyedLocks[NetworkId]
    patience_s: float
    _questions: _Questions = field(default_factory=_Questions, init=False)

    def learn(self, network_id: NetworkId) -> None:
        """Request the name of a network in the background; does not block."""
        self._questions.add(network_id)

    async def wait(self, network_id: NetworkId) -> str:
        """Return a network's name as soon as it is stored.

        Raises:
            Refused: The name is not known in time.
        """
        questions = self._questions.find([network_id])
        with suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                await self._questions.wait_until_each(questions, lambda one: one.is_done)
        record = self.store.find_network(network_id)
        if record is None or record.name is None:
            answers = (one.error for one in questions if one.error is not None)
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
        """Ask once; return whether nothing is left to do, because the name is stored or the network was removed."""
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
