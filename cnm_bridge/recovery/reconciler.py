# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the records with the engine and the kernel, and makes them agree.

It runs whenever the engine comes up, and periodically. What Docker and the kernel have lost is torn down; what Docker
has and we have lost is rebuilt. It looks twice and acts only on what both looks found: an endpoint whose CreateEndpoint
has not been answered yet is in no list of Docker's, and a DeleteEndpoint may be on its way to us.

Only the engine that calls us counts. `--docker-host` may point elsewhere by mistake, and that engine knows none of our
networks. So an engine is trusted only once it has known a network that we were asked to create; its ID is stored.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_invoker import CniError
from cnm_bridge.engine import Engine, EngineEndpoint, EngineNetwork
from cnm_bridge.errors import BridgeError, EngineUnavailable
from cnm_bridge.kernel import KernelError
from cnm_bridge.networks.engine_import import EngineImport
from cnm_bridge.networks.service import NetworkService
from cnm_bridge.recovery.adopt import AdoptEndpoint
from cnm_bridge.recovery.artifacts import remove_unwritten
from cnm_bridge.recovery.engine_diff import (
    EngineView,
    forgotten_endpoints,
    forgotten_networks,
    knows_any,
    unchanged_since,
    unknown_endpoints,
)
from cnm_bridge.recovery.leftovers import RemoveLeftovers
from cnm_bridge.recovery.orphans import Leftovers, OrphanAudit
from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.liveness import Liveness
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.wire import NetworkReference
from state import AttachmentId, EndpointId, EndpointRecord, NetworkId, NetworkRecord, StateError, Store

__all__ = ["Reconciler"]

log = structlog.get_logger()

_PAUSE_S: Final = 1.0
"""How soon an engine that has gone away is looked for again."""

_DEAD: Final = "its sandbox and its link are gone"
_FORGOTTEN: Final = "the engine does not know it"
_WITHOUT_LINK: Final = "its container has no network any more; restart the container"
_NOT_OURS: Final = "what Docker has lost is not found; see that --docker-host is the engine that uses this driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The findings of one look. Records are compared by identity: one that has changed since does not count."""

    forgotten: Mapping[EndpointId, tuple[EndpointRecord, str]] = field(default_factory=dict)
    networks: frozenset[NetworkId] = frozenset()
    unknown: Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]] = field(default_factory=dict)
    without_link: frozenset[EndpointId] = frozenset()
    leftovers: Mapping[AttachmentId, Leftovers] = field(default_factory=dict)
    has_asked_engine: bool = False

    @property
    def lost_records(self) -> tuple[EndpointRecord, ...]:
        """The records of what is forgotten."""
        return tuple(record for record, _ in self.forgotten.values())

    def __bool__(self) -> bool:
        return bool(self.forgotten or self.networks or self.unknown or self.without_link or self.leftovers)


class Reconciler:
    """Makes records, engine and kernel agree.

    Args:
        store: The records.
        engine: Docker's own lists.
        liveness: Finds the endpoints that are dead.
        in_use: Finds what is in use, whatever the engine reports.
        networks: Forgets networks.
        teardowns: Tears endpoints down.
        lost: Creates records of networks that Docker has and we have not.
        adopt: Creates records of such endpoints.
        audit: Finds objects without a record.
        remove: Removes those that are ours.
        driver: The name of this driver in Docker.
        interval_s: The pause between two rounds, in seconds.
        grace_s: The pause between the two looks of a round, in seconds.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        liveness: Liveness,
        in_use: InUseCheck,
        networks: NetworkService,
        teardowns: TeardownQueue,
        lost: EngineImport,
        adopt: AdoptEndpoint,
        audit: OrphanAudit,
        remove: RemoveLeftovers,
        driver: str,
        interval_s: float,
        grace_s: float,
    ) -> None:
        self._store = store
        self._engine = engine
        self._liveness = liveness
        self._in_use = in_use
        self._networks = networks
        self._teardowns = teardowns
        self._lost = lost
        self._adopt = adopt
        self._audit = audit
        self._remove = remove
        self._driver = driver
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._is_up = False
        self._rounds = 0
        self._wanted = asyncio.Event()
        self._said: frozenset[tuple[str, str]] = frozenset()
        self._said_now: set[tuple[str, str]] = set()

    @property
    def engine_is_up(self) -> bool:
        """The engine has answered and not gone away since."""
        return self._is_up

    @property
    def rounds(self) -> int:
        """How many rounds this daemon has completed in which the engine answered."""
        return self._rounds

    async def run(self) -> None:
        """Work for as long as it is not cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_engine())
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._wanted.wait()
                self._wanted.clear()
                try:
                    await self.once()
                except StateError as exc:
                    log.warning("reconcile.given_up", error=str(exc))
                except Exception:  # a bug in background work must neither end the daemon nor go unseen
                    log.exception("reconcile.bug")

    async def add_dead(self) -> int:
        """Request the teardown of what the kernel has lost, at the daemon's start; return how many.

        No calls run at that time, so one look is enough.
        """
        try:
            dead = await self._liveness.find_dead(self._store.endpoints())
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return 0
        gone = await self._in_use.without_in_use(dead)
        for record in gone:
            log.warning("endpoint.dead", endpoint_id=record.id, reason=_DEAD)
            self._teardowns.add_later(record.id)
            await asyncio.sleep(0)
        return len(gone)

    async def once(self) -> None:
        """Do one round."""
        if await self._go_round():
            self._rounds += 1
        self._said, self._said_now = frozenset(self._said_now), set()

    async def _go_round(self) -> bool:
        """Compare, and make what differs agree; return whether the engine answered."""
        first = await self._look()
        if not first and not self._audit.is_in_doubt:
            return first.has_asked_engine
        await asyncio.sleep(self._grace_s)
        second = await self._look()
        due = await self._in_use.without_in_use(unchanged_since(first.lost_records, second.lost_records))
        for record in due:
            _, reason = second.forgotten[record.id]
            log.warning("endpoint.forgotten", endpoint_id=record.id, phase=record.phase.value, reason=reason)
            await self._teardowns.abandon(record)
        for network_id in second.networks & first.networks:
            log.warning("network.forgotten", network_id=network_id, reason=_FORGOTTEN)
            await self._networks.delete(NetworkReference(network_id=network_id))
        for endpoint_id in second.unknown.keys() & first.unknown.keys():
            await self._rebuild_endpoint(*second.unknown[endpoint_id])
        for attachment_id in (second.leftovers.keys() & first.leftovers.keys()) - second.unknown.keys():
            await self._remove(second.leftovers[attachment_id])
        for endpoint_id in (second.without_link & first.without_link) - second.forgotten.keys():
            self._say_once(endpoint_id, "endpoint.without_link", endpoint_id=endpoint_id, consequence=_WITHOUT_LINK)
        return second.has_asked_engine

    async def _look(self) -> _Look:
        # the records first: what is made after them is not looked for
        endpoints, networks = self._store.endpoints(), self._store.networks()
        forgotten: dict[EndpointId, tuple[EndpointRecord, str]] = {}
        without_link: frozenset[EndpointId] = frozenset()
        try:
            forgotten |= {record.id: (record, _DEAD) for record in await self._liveness.find_dead(endpoints)}
            without_link = frozenset(record.id for record in await self._liveness.find_without_link(endpoints))
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        try:
            view = await self._view(networks, endpoints)
        except EngineUnavailable as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return _Look(forgotten=forgotten, without_link=without_link)
        if view is None:
            return _Look(forgotten=forgotten, without_link=without_link, has_asked_engine=True)
        gone = {record.id: (record, _FORGOTTEN) for record in forgotten_endpoints(view, endpoints)}
        leftovers: Mapping[AttachmentId, Leftovers] = {}
        try:
            leftovers = await self._audit.look(self._networks.bound_names(), self._networks.bound_documents())
            await self._release_unwritten()
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        return _Look(
            leftovers=leftovers,
            forgotten=forgotten | gone,
            networks=frozenset(record.id for record in forgotten_networks(view, networks, endpoints)),
            unknown=unknown_endpoints(view, (record.id for record in self._store.endpoints())),
            without_link=without_link,
            has_asked_engine=True,
        )

    async def _release_unwritten(self) -> None:
        """Release the addresses that a host-local reserved for no container, because it was killed."""
        try:
            for file in await asyncio.to_thread(lambda: tuple(remove_unwritten(self._audit.unwritten))):
                log.warning("reservation.unwritten", file=str(file))
        except OSError as exc:
            log.warning("reservation.unwritten_kept", error=str(exc))

    async def _view(
        self, networks: tuple[NetworkRecord, ...], endpoints: tuple[EndpointRecord, ...]
    ) -> EngineView | None:
        """Ask the engine for our networks; None if it is not the one that calls us, as far as is known.

        A network that Docker has removed may have had an endpoint that Docker lost.
        """
        identity = await self._engine.identity()
        is_ours = identity == self._store.engine_identity()
        ids = {record.id for record in networks} | {record.network_id for record in endpoints}
        if is_ours:
            ids.update(NetworkId(network_id) for network_id in await self._engine.network_ids(self._driver))
        view = EngineView(identity=identity, networks={i: await self._engine.find_network(i) for i in sorted(ids)})
        if not is_ours:
            if not knows_any(view, networks):
                if networks:
                    self._say_once(identity, "engine.knows_no_network", engine=identity, consequence=_NOT_OURS)
                return None
            await self._store.put_engine_identity(identity)
            self._wanted.set()  # once more: now its own list of networks counts too
        for network in view.networks.values():
            if network is not None:
                record = self._store.find_network(NetworkId(network.id))
                if record is None or record.name is None:
                    await self._lost.keep(network)
        return view

    async def _rebuild_endpoint(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        try:
            await self._adopt(network, endpoint)
        except (BridgeError, CniError, StateError) as exc:
            self._say_once(endpoint.id, "endpoint.not_adopted", endpoint_id=endpoint.id, error=str(exc))
        except Exception:  # a bug with one endpoint must not keep the others from being looked after, nor go unseen
            log.exception("endpoint.not_adopted", endpoint_id=endpoint.id)

    async def _follow_engine(self) -> None:
        def up() -> None:
            self._is_up = True
            self._wanted.set()

        while True:
            try:
                await self._engine.follow(up)
            except EngineUnavailable as exc:
                log.debug("engine.away", error=str(exc))
            except Exception:  # a bug in background work must neither end the daemon nor go unseen
                log.exception("reconcile.bug")
            self._is_up = False
            await asyncio.sleep(_PAUSE_S)

    def _say_once(self, subject: str, event: str, **words: str) -> None:
        """Log what is not ours to change in the first of the rounds in a row that find it."""
        if (subject, event) not in self._said | self._said_now:
            log.warning(event, **words)
        self._said_now.add((subject, event))
