# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The engine as reconcile sees it: only an engine that is known to use this driver counts.

`--docker-host` may point to another engine by mistake, which knows none of our networks. So an engine is trusted only
once it has known a network that we were asked to create; its ID is stored.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord, NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import EngineVersion
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.recovery.engine_diff import EngineView, find_foreign, knows_any
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()

_PAUSE_S: Final = 1.0
"""Pause before the next attempt to connect to an engine that went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    """The answer of an engine.

    Attributes:
        identity: The engine's own ID.
        view: Its networks and endpoints, None if the engine is not known to use this driver.
        foreign: The networks that another engine has made. The view lacks them.
        is_new: Whether the engine is trusted only since this answer. Its own list of networks was not asked for yet.
    """

    identity: str
    view: EngineView | None
    foreign: frozenset[NetworkId] = frozenset()
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedEngine:
    """Asks the engine for what belongs to this driver."""

    store: Store
    engine: Engine
    engine_import: EngineImport
    version: KnownVersion
    driver: str

    @property
    def is_up(self) -> bool:
        """Whether the daemon is connected to the engine's event stream."""
        return self.version.is_up

    async def follow(self, begin: Callable[[], None], on_connected: Callable[[str], None]) -> None:
        """Stay connected to the event stream until cancelled; call `begin` when a round should begin.

        That is whenever the connection was made, and when a network was made while no engine is trusted: if dockerd
        then lost that network, as a worker of a swarm does, nothing could tell that its endpoints are gone.
        `on_connected` is that of `Engine.follow`.
        """

        def up(version: EngineVersion | None) -> None:
            self.version.note(version)
            begin()

        def note_network() -> None:
            if self.store.engine_identity() is None:
                begin()

        while True:
            try:
                await self.engine.follow(up, note_network, on_connected)
            except EngineUnavailable as exc:
                log.debug("engine.away", error=str(exc))
            except Exception:  # a bug in background work is logged, and must not end the daemon
                log.exception("reconcile.bug")
            self.version.lose()
            await asyncio.sleep(_PAUSE_S)

    async def ask(self, networks: Sequence[NetworkRecord], endpoints: Sequence[EndpointRecord]) -> EngineAnswer:
        """Return what the engine has of all networks in some records, but those that another engine has made.

        Networks without a record get one.

        This includes networks that have no record but still an endpoint: Docker may have lost that endpoint.

        Raises:
            EngineUnavailable: It does not answer.
            StateError: Its ID, or the record of a network, cannot be written.
        """
        await self.version.keep()
        identity = await self.engine.identity()
        is_trusted = identity == self.store.engine_identity()
        ids = {record.id for record in networks} | {record.network_id for record in endpoints}
        if is_trusted:
            ids.update(NetworkId(network_id) for network_id in await self.engine.network_ids(self.driver))
        view = EngineView(identity=identity, networks={i: await self.engine.find_network(i) for i in sorted(ids)})
        if not is_trusted:
            if not knows_any(view, networks):
                return EngineAnswer(identity=identity, view=None)
            await self.store.put_engine_identity(identity)
        foreign = find_foreign(view, networks, endpoints)
        view = replace(view, networks={i: network for i, network in view.networks.items() if i not in foreign})
        for network in view.networks.values():
            if network is not None:
                await self.engine_import.keep(network, identity)
        return EngineAnswer(identity=identity, view=view, foreign=foreign, is_new=not is_trusted)
