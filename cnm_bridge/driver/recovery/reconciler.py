# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the records with the engine and the kernel, and repairs the differences, in rounds.

What Docker and the kernel have lost is torn down; what Docker has and we have lost is rebuilt. A round acts only on
what two comparisons found: an endpoint that is being created or deleted is in only one of the lists.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, NetworkId, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cnm_bridge.core.engine_facts.network import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import BridgeError, EngineUnavailable, KernelError
from cnm_bridge.driver.ipam.unclaimed_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.artifacts import remove_unwritten
from cnm_bridge.driver.recovery.leftovers import LeftoverFinder, Leftovers
from cnm_bridge.driver.recovery.rebuild_endpoint import RebuildEndpoint
from cnm_bridge.driver.recovery.trusted_engine import (
    UNKNOWN_TO_ENGINE,
    EngineAnswer,
    TrustedEngine,
    dead_endpoints,
    dead_networks,
    unchanged_since,
    unknown_endpoints,
)
from cnm_bridge.driver.teardown.liveness import DEAD, Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue

log = structlog.get_logger()

_LOCKED_LIMIT_S: Final = 2.0
"""How long a round waits for a dead endpoint that is locked, perhaps because a plugin hangs."""
_NOT_OURS: Final = (
    "endpoints that Docker has lost cannot be found; make sure that --docker-host is the engine that uses this driver"
)
_FOREIGN: Final = (
    "the engine of --docker-host does not know it, so it stays until the engine that has made it removes it; a second "
    "engine should have an instance of cni-bridge of its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences that one comparison found."""

    dead: Mapping[EndpointId, tuple[EndpointRecord, str]] = field(default_factory=dict)
    """Endpoints that Docker or the kernel has lost: the record, and the reason for the log."""
    networks: frozenset[NetworkId] = frozenset()
    """Networks that Docker has lost."""
    unknown: Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]] = field(default_factory=dict)
    """Endpoints in containers that Docker has and that have no record, each with its network."""
    leftovers: Mapping[AttachmentId, Leftovers] = field(default_factory=dict)
    unwritten: tuple[Path, ...] = ()
    """Reservations that are empty because host-local was killed, or is about to write them."""
    has_networks: bool = False
    """Whether there are records of networks."""
    answer: EngineAnswer | None = None

    @property
    def dead_records(self) -> tuple[EndpointRecord, ...]:
        """The records of the dead endpoints."""
        return tuple(record for record, _ in self.dead.values())

    def without(self, endpoints: frozenset[EndpointId]) -> "Differences":
        """Return the differences besides those of some unknown endpoints."""
        return replace(
            self,
            unknown={key: found for key, found in self.unknown.items() if key not in endpoints},
            leftovers={key: found for key, found in self.leftovers.items() if EndpointId(key) not in endpoints},
        )

    def __bool__(self) -> bool:
        return bool(self.dead or self.networks or self.unknown or self.leftovers)


@dataclass(slots=True, kw_only=True)
class Repair:
    """Compares twice and repairs. Raises `StateError` if a record cannot be written."""

    store: Store
    engine: TrustedEngine
    liveness: Liveness
    lists: NetworkLists
    leftovers: LeftoverFinder
    networks: NetworkService
    teardowns: TeardownQueue
    rebuild_endpoint: RebuildEndpoint
    grace_s: float
    _warned_before: frozenset[tuple[str, str]] = field(default=frozenset(), init=False)
    _warned_now: set[tuple[str, str]] = field(default_factory=set, init=False)
    _not_rebuilt: set[EndpointId] = field(default_factory=set, init=False)
    _foreign_before: frozenset[NetworkId] = field(default=frozenset(), init=False)

    async def __call__(self) -> EngineAnswer | None:
        """Compare twice, and repair the differences found by both; return the engine's answer."""
        self._warned_before, self._warned_now = frozenset(self._warned_now), set()
        first = await self._compare()
        if first.answer is not None and first.answer.is_new:  # now the engine's own list of networks counts, too
            first = await self._compare()
        # What the last round could not rebuild was found by two comparisons then: it needs no further pause.
        known = frozenset(first.unknown.keys() & self._not_rebuilt)
        self._not_rebuilt.clear()
        for endpoint_id in known:
            await self._try_rebuild(*first.unknown[endpoint_id])
        first = first.without(known)
        if not first:
            return first.answer
        await asyncio.sleep(self.grace_s)
        second = await self._compare()
        due = await self.liveness.without_in_use(unchanged_since(first.dead_records, second.dead_records))
        async with asyncio.TaskGroup() as tasks:
            for record in due:
                tasks.create_task(self._tear_down(*second.dead[record.id]))
        for network_id in second.networks & first.networks:
            log.warning("network.dead", network_id=network_id, reason=UNKNOWN_TO_ENGINE)
            await self.networks.forget(network_id)
        for endpoint_id in second.unknown.keys() & first.unknown.keys():
            await self._try_rebuild(*second.unknown[endpoint_id])
        for attachment_id in (second.leftovers.keys() & first.leftovers.keys()) - second.unknown.keys():
            await self.leftovers.remove(second.leftovers[attachment_id])
        return second.answer

    async def _tear_down(self, record: EndpointRecord, reason: str) -> None:
        log.warning("endpoint.dead", endpoint_id=record.id, phase=record.phase.value, reason=reason)
        with suppress(TimeoutError):  # the next round tries again
            async with asyncio.timeout(_LOCKED_LIMIT_S):
                await self.teardowns.tear_down(record)

    async def _compare(self) -> Differences:
        """Compare once, and do what needs no second comparison."""
        found = await self._find_differences()
        if found.answer is not None and found.answer.view is None and found.has_networks:
            identity = found.answer.identity
            self._warn_once(identity, "engine.knows_no_network", engine=identity, consequence=_NOT_OURS)
        if found.answer is not None:  # one whose CreateNetwork has just been answered may not be listed yet
            for network_id in sorted(found.answer.foreign & self._foreign_before):
                self._warn_once(network_id, "network.foreign", network_id=network_id, consequence=_FOREIGN)
            self._foreign_before = found.answer.foreign
        for file in found.unwritten:
            await self._release(file)
        return found

    async def _find_differences(self) -> Differences:
        """Compare once. What cannot be read is logged, and counts as no difference."""
        # Records first: a record stored later is not compared, so a new endpoint does not look like a lost one.
        endpoints, networks = self.store.endpoints(), self.store.networks()
        unwritten = await self.leftovers.find_unwritten(self.lists.bound_names(), self.lists.bound_documents())
        dead: dict[EndpointId, tuple[EndpointRecord, str]] = {}
        try:
            dead |= {record.id: (record, DEAD) for record in await self.liveness.find_dead(endpoints)}
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        try:
            answer = await self.engine.ask(networks, endpoints)
        except EngineUnavailable as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return Differences(dead=dead, unwritten=unwritten)
        if answer.view is None:
            return Differences(dead=dead, unwritten=unwritten, has_networks=bool(networks), answer=answer)
        leftovers = await self._find_leftovers()
        gone = {record.id: (record, UNKNOWN_TO_ENGINE) for record in dead_endpoints(answer.view, endpoints)}
        return Differences(
            leftovers=leftovers,
            dead=dead | gone,
            networks=frozenset(record.id for record in dead_networks(answer.view, networks, endpoints)),
            unknown=unknown_endpoints(answer.view, self.store.endpoints()),
            unwritten=unwritten,
            has_networks=bool(networks),
            answer=answer,
        )

    async def _find_leftovers(self) -> Mapping[AttachmentId, Leftovers]:
        try:
            return await self.leftovers.find(self.lists.bound_names(), self.lists.bound_documents())
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return {}

    async def _release(self, unwritten: Path) -> None:
        try:
            if await asyncio.to_thread(remove_unwritten, unwritten):
                log.warning("reservation.unwritten", file=str(unwritten))
        except OSError as exc:
            self._warn_once(str(unwritten), "reservation.unwritten_kept", file=str(unwritten), error=str(exc))

    async def _try_rebuild(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        try:
            await self.rebuild_endpoint(network, endpoint)
        except (BridgeError, CniError, KernelError, StateError) as exc:
            self._not_rebuilt.add(EndpointId(endpoint.id))
            self._warn_once(endpoint.id, "endpoint.not_rebuilt", endpoint_id=endpoint.id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
            log.exception("endpoint.not_rebuilt", endpoint_id=endpoint.id)

    def _warn_once(self, subject: str, event: str, **fields: str) -> None:
        """Log a problem that the daemon cannot repair, unless the previous round logged it too."""
        if (subject, event) not in self._warned_before | self._warned_now:
            log.warning(event, **fields)
        self._warned_now.add((subject, event))


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Runs the rounds."""

    engine: TrustedEngine
    repair: Repair
    unclaimed_addresses: UnclaimedAddresses
    ways_out: WaysOut
    interval_s: float
    """The pause between two rounds."""
    rounds: int = field(default=0, init=False)
    """How many rounds in which the engine answered have completed since the daemon started."""
    last_round: float | None = field(default=None, init=False)
    """When the last of these ended, in seconds since 1970; None if there was none."""
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _begun: int = field(default=0, init=False)
    _ended: int = field(default=0, init=False)
    _round_ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def engine_is_up(self) -> bool | None:
        """Whether the daemon is connected to the engine's event stream; None if that is not known yet."""
        return self.engine.version.is_up

    async def run(self) -> None:
        """Run rounds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.follow(self._wanted.set, self.ways_out.note_connected))
            tasks.create_task(self.ways_out.look_when_connected())
            tasks.create_task(self.engine.version.give_up())
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.interval_s):
                        await self._wanted.wait()
                self._wanted.clear()
                self._begun += 1
                try:
                    await self.once()
                except StateError as exc:
                    log.warning("reconcile.given_up", error=str(exc))
                except Exception:  # a bug in background work is logged, and must not end the daemon
                    log.exception("reconcile.bug")
                self._ended = self._begun
                self._round_ended.set()
                self._round_ended = asyncio.Event()

    async def wait_round(self) -> None:
        """Begin a round now, and wait for its end. If one is running, another follows it."""
        wanted = self._begun + 1
        self._wanted.set()
        while self._ended < wanted:
            await self._round_ended.wait()

    async def once(self) -> None:
        """Run one round."""
        if await self.repair() is not None:
            self.rounds += 1
            self.last_round = time.time()
            await self.unclaimed_addresses.compare()
            await self.ways_out.look()
