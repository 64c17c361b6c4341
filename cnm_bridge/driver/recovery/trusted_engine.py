# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The engine as reconcile sees it: only an engine that is known to use this driver counts.

`--docker-host` may point to another engine by mistake, which knows none of our networks. So an engine is trusted only
once it has known a network that we were asked to create; its ID is stored.

dockerd does not report the endpoints that it lost in a crash, and ignores errors of DeleteEndpoint. So its lists are
compared with the records (`reconciler.py`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.engine_facts.network import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.known_version import KnownVersion

UNKNOWN_TO_ENGINE: Final = "the engine does not know it"
"""Why a dead endpoint or network is removed, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """The engine's networks at one moment."""

    identity: str
    """The engine's ID (`docker info`, field ID)."""
    networks: Mapping[NetworkId, EngineNetwork | None]
    """The networks that it was asked for, by ID; None for a network that it does not know."""


def knows_any(view: EngineView, networks: Iterable[NetworkRecord]) -> bool:
    """Return whether the engine knows one of these networks. Then it is an engine that uses this driver."""
    return any(view.networks.get(network.id) is not None for network in networks)


def find_foreign(
    view: EngineView, networks: Iterable[NetworkRecord], endpoints: Iterable[EndpointRecord]
) -> frozenset[NetworkId]:
    """Return the networks made by an engine other than the one asked.

    Only the engine that has made a network can say that it no longer exists. That is the engine that has listed it. If
    none has yet, the process that requested the network decides: it belongs to an engine if it has also requested a
    network that this engine has listed, or an endpoint of one. If neither is known, the network is not returned.

    An engine gets a new ID if the file with its ID is lost. So an engine that lists the network of an ID has that ID,
    too.
    """
    records = tuple(networks)
    listed = frozenset(network_id for network_id, network in view.networks.items() if network is not None)
    engines = {view.identity, *(record.engine for record in records if record.id in listed)}
    made = {record.id for record in records if record.id in listed or record.engine in engines - {None}}
    callers = {
        *(record.caller for record in records if record.id in made),
        *(endpoint.caller for endpoint in endpoints if endpoint.network_id in made),
    }
    return frozenset(
        record.id
        for record in records
        if record.id not in made
        and (record.engine is not None or (record.caller is not None and record.caller not in callers))
    )


def dead_endpoints(view: EngineView, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the endpoints that Docker no longer has."""
    return tuple(
        record
        for record in endpoints
        if record.phase.is_attached and record.network_id in view.networks and _lacks(view, record)
    )


def dead_networks(
    view: EngineView, networks: Iterable[NetworkRecord], endpoints: Iterable[EndpointRecord]
) -> tuple[NetworkRecord, ...]:
    """Return the networks that Docker no longer has and that have no endpoints."""
    used = {record.network_id for record in endpoints}
    return tuple(
        record
        for record in networks
        if record.id in view.networks and view.networks[record.id] is None and record.id not in used
    )


def unknown_endpoints(
    view: EngineView, known: Iterable[EndpointRecord]
) -> Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]]:
    """Return the endpoints in containers that Docker has and we do not know, each with its network.

    One in no container has no sandbox, so nothing of it can be rebuilt.
    """
    records = {record.id for record in known}
    return {
        EndpointId(endpoint.id): (network, endpoint)
        for network in view.networks.values()
        if network is not None
        for endpoint in network.endpoints.values()
        if endpoint.id not in records and endpoint.container_id is not None
    }


def unchanged_since(earlier: Iterable[EndpointRecord], later: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    """Return the later records that are also among the earlier ones and have not been stored again in between.

    Records are compared by identity: the store returns the same object until a record is stored again.
    """
    seen = {record.id: record for record in earlier}
    return tuple(record for record in later if seen.get(record.id) is record)


def _lacks(view: EngineView, record: EndpointRecord) -> bool:
    network = view.networks[record.network_id]
    return network is None or record.id not in network.endpoints


log = structlog.get_logger()

_PAUSE_S: Final = 1.0
"""Pause before the next attempt to connect to an engine that went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    """The answer of an engine."""

    identity: str
    view: EngineView | None
    """Its networks and endpoints, None if the engine is not known to use this driver."""
    foreign: frozenset[NetworkId] = frozenset()
    """The networks that another engine has made. The view lacks them."""
    is_new: bool = False
    """Whether the engine is trusted only since this answer. Its own list of networks was not asked for yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedEngine:
    """Asks the engine for what belongs to this driver."""

    store: Store
    engine: Engine
    engine_import: EngineImport
    version: KnownVersion
    driver: str

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

        Networks without a record get one. This includes networks that have no record but still an endpoint: Docker may
        have lost that endpoint. Raises `EngineUnavailable` if it does not answer, `StateError` if something cannot be
        written.
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
