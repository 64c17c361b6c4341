# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Learns the names of networks, which CreateNetwork does not tell.

A network made without `-o cni.network` is bound to the network configuration list of its own name. The engine tells
that name only after CreateNetwork has been answered; so it is asked in the background, and what it says is stored.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import structlog

from cnm_bridge.errors import EngineUnavailable, Refused
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.scheduling.retry_queue import RetryQueue
from state import NetworkId, Store

__all__ = ["NetworkNameResolver", "NetworkNames"]

log = structlog.get_logger()

_FIRST_PAUSE_S: Final = 0.01
"""`docker network create` returns about this long after CreateNetwork; `docker run` may be the next command."""
_LONGEST_PAUSE_S: Final = 10.0
"""An engine that boots, or is away, is asked again this often."""


class NetworkNames(Protocol):
    """Where the names of networks come from."""

    async def network_name(self, network_id: str) -> str | None:
        """Return the name, None if the network is not known yet; raise `EngineUnavailable` without an answer."""


class NetworkNameResolver:
    """Learns and stores the names of unbound networks.

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
        self._unanswered: dict[NetworkId, str] = {}
        self._retries: RetryQueue[NetworkId] = RetryQueue(
            self._learn, first_pause_s=_FIRST_PAUSE_S, longest_pause_s=_LONGEST_PAUSE_S
        )

    def learn(self, network_id: NetworkId) -> None:
        """Have the name of a network learned; returns at once."""
        self._retries.want(network_id)

    async def wait(self, network_id: NetworkId) -> str:
        """Return a network's name as soon as it is stored.

        Raises:
            Refused: The name is not known in time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._retries.wait_done(network_id)
        record = self._store.find_network(network_id)
        if record is None or record.name is None:
            why = self._unanswered.get(network_id, "the Docker Engine does not know the network")
            raise Refused(
                f"network {network_id} is not bound to a CNI configuration yet: it was made without -o cni.network, "
                f"and its name could not be learned ({why}); see that --docker-host is right, "
                "or make the network with -o cni.network=NAME"
            )
        return record.name

    async def run(self) -> None:
        """Learn names for as long as it is not cancelled."""
        for network in self._store.networks():
            if network.configuration is None and network.name is None:
                self.learn(network.id)
        await self._retries.run()

    async def _learn(self, network_id: NetworkId) -> bool:
        """Return whether nothing is left to learn: the name is stored now, or the network is gone."""
        if self._store.find_network(network_id) is None:
            return True
        try:
            name = await self._names.network_name(network_id)
        except EngineUnavailable as exc:
            if network_id not in self._unanswered:  # once: while dockerd boots it does not answer, and is asked often
                self._unanswered[network_id] = str(exc)
                log.warning("network.name_unknown", network_id=network_id, error=str(exc))
            return False
        if name is None:
            return False
        async with self._locks.hold(network_id):
            record = self._store.find_network(network_id)
            if record is not None:
                await self._store.put_network(replace(record, name=name))
                log.info("network.named", network_id=network_id, name=name)
        self._unanswered.pop(network_id, None)
        return True
