# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks the engine for the names of networks, which CreateNetwork does not contain.

A network made without `-o cni.network` uses the network configuration list of its own name. The engine knows the name
only after the reply to CreateNetwork, so it is asked in the background.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable, Refused, network_option
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()

_FIRST_PAUSE_S: Final = 0.01
"""`docker network create` returns about this long after CreateNetwork; `docker run` may be the next command."""
_LONGEST_PAUSE_S: Final = 10.0
"""The longest pause before an engine that does not answer is asked again."""


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
    _unanswered: dict[NetworkId, str] = field(default_factory=dict, init=False)
    _learning: dict[NetworkId, asyncio.Event] = field(default_factory=dict, init=False)
    _added: asyncio.Queue[NetworkId] = field(default_factory=asyncio.Queue, init=False)

    def learn(self, network_id: NetworkId) -> None:
        """Request the name of a network in the background; does not block."""
        if network_id not in self._learning:
            self._learning[network_id] = asyncio.Event()
            self._added.put_nowait(network_id)

    async def wait(self, network_id: NetworkId) -> str:
        """Return a network's name as soon as it is stored.

        Raises:
            Refused: The name is not known in time.
        """
        is_learned = self._learning.get(network_id)
        if is_learned is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience_s):
                    await is_learned.wait()
        record = self.store.find_network(network_id)
        if record is None or record.name is None:
            why = self._unanswered.get(network_id, "the Docker Engine does not know the network")
            raise Refused(
                f"network {network_id} is not bound to a CNI configuration yet: it was made without -o cni.network, "
                f"and its name could not be learned ({why}); check --docker-host, "
                f"or make the network with {network_option('cni.network', 'NAME')}"
            )
        return record.name

    async def run(self) -> None:
        """Learn names until cancelled. Then it can be called again, and continues with all of them."""
        unnamed = (one.id for one in self.store.networks() if one.configuration is None and one.name is None)
        self._added = asyncio.Queue()
        for network_id in dict.fromkeys((*self._learning, *unnamed)):
            self._learning.setdefault(network_id, asyncio.Event())
            self._added.put_nowait(network_id)
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._learn(await self._added.get()))

    async def _learn(self, network_id: NetworkId) -> None:
        """Ask until the name is stored or the network was removed, with growing pauses."""
        pause_s = _FIRST_PAUSE_S
        while not await self._is_learned(network_id):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        self._learning.pop(network_id).set()

    async def _is_learned(self, network_id: NetworkId) -> bool:
        try:
            return await self._ask(network_id)
        except Exception:  # a bug must be logged; it must not end the daemon or the other questions
            log.exception("retry.bug", key=network_id)
            return False

    async def _ask(self, network_id: NetworkId) -> bool:
        """Ask once; return whether nothing is left to do, because the name is stored or the network was removed."""
        if self.store.find_network(network_id) is None:
            return True
        try:
            name = await self.engine.network_name(network_id)
        except EngineUnavailable as exc:
            if network_id not in self._unanswered:  # logged once, because a booting dockerd is asked often
                self._unanswered[network_id] = str(exc)
                log.warning("network.name_unknown", network_id=network_id, error=str(exc))
            return False
        if name is None:
            return False
        async with self.locks.hold(network_id):
            record = self.store.find_network(network_id)
            if record is not None:
                await self.store.put_network(replace(record, name=name))
                log.info("network.named", network_id=network_id, name=name)
        self._unanswered.pop(network_id, None)
        return True
