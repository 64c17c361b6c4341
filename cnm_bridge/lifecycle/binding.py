# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Learns the names of networks, which CreateNetwork does not tell.

A network made without `-o cni.network` is bound to the network configuration list of its own name. The engine tells
that name only after CreateNetwork has been answered; so it is asked in the background, and what it says is stored.
"""

import asyncio
from dataclasses import replace
from typing import Final, Protocol

import structlog

from cnm_bridge.errors import EngineUnavailable, Refused
from cnm_bridge.lifecycle.locks import KeyedLocks
from state import NetworkId, Store

__all__ = ["Binder", "NetworkNames"]

log = structlog.get_logger()

_FIRST_PAUSE_S: Final = 0.01
"""`docker network create` returns about this long after CreateNetwork; `docker run` may be the next command."""
_LONGEST_PAUSE_S: Final = 10.0
"""An engine that boots, or is away, is asked again this often."""


class NetworkNames(Protocol):
    """Where the names of networks come from."""

    async def network_name(self, network_id: str) -> str | None:
        """Return the name, None if the network is not known yet; raise `EngineUnavailable` without an answer."""


class Binder:
    """Learns and stores the names of unbound networks, one task each, in `run`.

    Args:
        store: Where names are stored.
        names: Where they come from.
        locks: The locks of networks.
        patience_s: How long `wait` waits.
    """

    def __init__(self, store: Store, names: NetworkNames, locks: KeyedLocks[NetworkId], patience_s: float) -> None:
        self._store = store
        self._names = names
        self._locks = locks
        self._patience_s = patience_s
        self._wanted: asyncio.Queue[NetworkId] = asyncio.Queue()
        self._learning: dict[NetworkId, asyncio.Event] = {}

    def learn(self, network_id: NetworkId) -> None:
        """Have the name of a network learned; returns at once."""
        if network_id not in self._learning:
            self._learning[network_id] = asyncio.Event()
            self._wanted.put_nowait(network_id)

    async def wait(self, network_id: NetworkId) -> str:
        """Return a network's name as soon as it is stored.

        Raises:
            Refused: The name is not known in time.
        """
        learned = self._learning.get(network_id)
        if learned is not None:
            try:
                async with asyncio.timeout(self._patience_s):
                    await learned.wait()
            except TimeoutError:
                pass
        record = self._store.find_network(network_id)
        if record is None or record.name is None:
            raise Refused(
                f"network {network_id} is not bound to a CNI configuration yet: it was made without -o cni.network, "
                "and the Docker Engine has not told its name; see that --docker-host is right, "
                "or make the network with -o cni.network=NAME"
            )
        return record.name

    async def run(self) -> None:
        """Learn names for as long as it is not cancelled."""
        for network in self._store.networks():
            if network.configuration is None and network.name is None:
                self.learn(network.id)
        async with asyncio.TaskGroup() as tasks:
            while True:
                network_id = await self._wanted.get()
                tasks.create_task(self._learn(network_id), name=f"learn the name of network {network_id}")

    async def _learn(self, network_id: NetworkId) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not await self._try(network_id):
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            self._learning.pop(network_id).set()

    async def _try(self, network_id: NetworkId) -> bool:
        """Do what `_ask` does; whatever goes wrong is tried again, and does not end the daemon."""
        try:
            return await self._ask(network_id)
        except EngineUnavailable as exc:
            log.debug("engine.unavailable", network_id=network_id, error=str(exc))
        except Exception:
            log.exception("network.not_named", network_id=network_id)
        return False

    async def _ask(self, network_id: NetworkId) -> bool:
        """Return whether nothing is left to learn: the name is stored now, or the network is gone."""
        if self._store.find_network(network_id) is None:
            return True
        name = await self._names.network_name(network_id)
        if name is None:
            return False
        async with self._locks.hold(network_id):
            record = self._store.find_network(network_id)
            if record is not None:
                await self._store.put_network(replace(record, name=name))
                log.info("network.named", network_id=network_id, name=name)
        return True
