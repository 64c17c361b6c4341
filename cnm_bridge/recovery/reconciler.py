# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the records with the engine and the kernel, and repairs the differences.

A round runs whenever the engine comes up, and periodically. Endpoints that Docker or the kernel has lost are torn down;
records that the daemon has lost are rebuilt from Docker's data. A round compares twice, some seconds apart, and acts
only on the differences that both comparisons found: an endpoint whose CreateEndpoint has not been answered is not in
Docker's lists yet, and a DeleteEndpoint may be on its way.

`--docker-host` may point to the wrong engine by mistake, which knows none of the daemon's networks. So an engine is
trusted only after it has known a network that this driver was asked to create; then its ID is stored.
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
"""Pause before the next attempt to connect to an engine that went away."""

_DEAD: Final = "its sandbox and its link are gone"
_FORGOTTEN: Final = "the engine does not know it"
_WITHOUT_LINK: Final = "its container has no network any more; restart the container"
_NOT_OURS: Final = (
    "endpoints that Docker has lost cannot be found; make sure that --docker-host is the engine that uses this driver"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Differences:
    """The differences that one comparison found.

    Attributes:
        forgotten: Endpoints that Docker or the kernel has lost: the record, and the reason for the log.
        networks: Networks that Docker has lost.
        unknown: Endpoints that Docker has and that have no record, each with its network.
        without_link: Joined endpoints whose sandbox exists and whose link does not.
        leftovers: Objects of endpoints whose record was lost.
        has_asked_engine: Whether the engine answered.
    """

    forgotten: Mapping[EndpointId, tuple[EndpointRecord, str]] = field(default_factory=dict)
    networks: frozenset[NetworkId] = frozenset()
    unknown: Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]] = field(default_factory=dict)
    without_link: frozenset[EndpointId] = frozenset()
    leftovers: Mapping[AttachmentId, Leftovers] = field(default_factory=dict)
    has_asked_engine: bool = False

    @property
    def lost_records(self) -> tuple[EndpointRecord, ...]:
        """The records of the forgotten endpoints."""
        return tuple(record for record, _ in self.forgotten.values())

    def __bool__(self) -> bool:
        return bool(self.forgotten or self.networks or self.unknown or self.without_link or self.leftovers)


class Reconciler:
    """Compares the records with the engine and the kernel, and repairs the differences.

    Args:
        store: The records.
        engine: Lists the networks and endpoints of Docker.
        liveness: Finds dead endpoints.
        in_use: Finds endpoints in use.
        networks: Removes the records of networks.
        teardowns: Tears endpoints down.
        engine_import: Creates records of networks that Docker has and that have none.
        adopt: Creates records of endpoints that Docker has and that have none.
        audit: Finds objects without a record.
        remove_leftovers: Removes those of our own endpoints.
        driver: This driver's name in Docker.
        interval_s: The pause between two rounds, in seconds.
        grace_s: The pause between the two comparisons of a round, in seconds.
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
        engine_import: EngineImport,
        adopt: AdoptEndpoint,
        audit: OrphanAudit,
        remove_leftovers: RemoveLeftovers,
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
        self._engine_import = engine_import
        self._adopt = adopt
        self._audit = audit
        self._remove_leftovers = remove_leftovers
        self._driver = driver
        self._interval_s = interval_s
        self._grace_s = grace_s
        self._is_up = False
        self._rounds = 0
        self._wanted = asyncio.Event()
        self._warned_before: frozenset[tuple[str, str]] = frozenset()
        self._warned_now: set[tuple[str, str]] = set()

    @property
    def engine_is_up(self) -> bool:
        """Whether the daemon is connected to the engine's event stream."""
        return self._is_up

    @property
    def rounds(self) -> int:
        """Number of completed rounds in which the engine answered, since the daemon started."""
        return self._rounds

    async def run(self) -> None:
        """Run rounds until cancelled."""
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
                except Exception:  # a bug in background work is logged, and must not end the daemon
                    log.exception("reconcile.bug")

    async def add_dead(self) -> int:
        """Add the teardowns of endpoints that the kernel has lost, when the daemon starts; return their number.

        No calls are running at that time, so one comparison is enough.
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
        """Run one round."""
        if await self._compare_and_repair():
            self._rounds += 1
        self._warned_before, self._warned_now = frozenset(self._warned_now), set()

    async def _compare_and_repair(self) -> bool:
        """Compare twice, and repair the differences found by both; return whether the engine answered."""
        first = await self._compare()
        if not first and not self._audit.has_unconfirmed:
            return first.has_asked_engine
        await asyncio.sleep(self._grace_s)
        second = await self._compare()
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
            await self._remove_leftovers(second.leftovers[attachment_id])
        for endpoint_id in (second.without_link & first.without_link) - second.forgotten.keys():
            self._warn_once(endpoint_id, "endpoint.without_link", endpoint_id=endpoint_id, consequence=_WITHOUT_LINK)
        return second.has_asked_engine

    async def _compare(self) -> _Differences:
        # Records first: a record stored later is not compared, so a new endpoint does not look like a lost one.
        endpoints, networks = self._store.endpoints(), self._store.networks()
        forgotten: dict[EndpointId, tuple[EndpointRecord, str]] = {}
        without_link: frozenset[EndpointId] = frozenset()
        try:
            forgotten |= {record.id: (record, _DEAD) for record in await self._liveness.find_dead(endpoints)}
            without_link = frozenset(record.id for record in await self._liveness.find_without_link(endpoints))
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        try:
            view = await self._ask_engine(networks, endpoints)
        except EngineUnavailable as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return _Differences(forgotten=forgotten, without_link=without_link)
        if view is None:
            return _Differences(forgotten=forgotten, without_link=without_link, has_asked_engine=True)
        gone = {record.id: (record, _FORGOTTEN) for record in forgotten_endpoints(view, endpoints)}
        leftovers: Mapping[AttachmentId, Leftovers] = {}
        try:
            leftovers = await self._audit.scan(self._networks.bound_names(), self._networks.bound_documents())
            await self._release_unwritten()
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        return _Differences(
            leftovers=leftovers,
            forgotten=forgotten | gone,
            networks=frozenset(record.id for record in forgotten_networks(view, networks, endpoints)),
            unknown=unknown_endpoints(view, (record.id for record in self._store.endpoints())),
            without_link=without_link,
            has_asked_engine=True,
        )

    async def _release_unwritten(self) -> None:
        """Release addresses whose reservation is empty because host-local was killed."""
        try:
            for file in await asyncio.to_thread(lambda: tuple(remove_unwritten(self._audit.unwritten))):
                log.warning("reservation.unwritten", file=str(file))
        except OSError as exc:
            log.warning("reservation.unwritten_kept", error=str(exc))

    async def _ask_engine(
        self, networks: tuple[NetworkRecord, ...], endpoints: tuple[EndpointRecord, ...]
    ) -> EngineView | None:
        """Return the engine's view of all networks in the records; None if the engine is not known to use this driver.

        This includes networks that have no record but still an endpoint: Docker may have lost that endpoint.
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
                    self._warn_once(identity, "engine.knows_no_network", engine=identity, consequence=_NOT_OURS)
                return None
            await self._store.put_engine_identity(identity)
            self._wanted.set()  # run another round: now the engine's own list of networks counts too
        for network in view.networks.values():
            if network is not None:
                record = self._store.find_network(NetworkId(network.id))
                if record is None or record.name is None:
                    await self._engine_import.keep(network)
        return view

    async def _rebuild_endpoint(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        try:
            await self._adopt(network, endpoint)
        except (BridgeError, CniError, StateError) as exc:
            self._warn_once(endpoint.id, "endpoint.not_adopted", endpoint_id=endpoint.id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
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
            except Exception:  # a bug in background work is logged, and must not end the daemon
                log.exception("reconcile.bug")
            self._is_up = False
            await asyncio.sleep(_PAUSE_S)

    def _warn_once(self, subject: str, event: str, **fields: str) -> None:
        """Log a problem that the daemon cannot repair, unless the previous round logged it too."""
        if (subject, event) not in self._warned_before | self._warned_now:
            log.warning(event, **fields)
        self._warned_now.add((subject, event))
