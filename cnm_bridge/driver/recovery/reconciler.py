# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the records with the engine and the kernel, and repairs the differences.

It runs whenever the engine comes up, and periodically. What Docker and the kernel have lost is torn down; what Docker
has and we have lost is rebuilt. Each round compares twice and acts only on what both comparisons found: an endpoint
whose CreateEndpoint has not been answered yet is in no list of Docker's, and a DeleteEndpoint may be on its way to us.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord, NetworkId, StateError
from cni_invoker import CniError
from cnm_bridge.core.engine_facts import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.ipam.lost_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.managed import ManagedNetworks
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.artifacts import remove_unwritten
from cnm_bridge.driver.recovery.comparison import Comparison, Differences
from cnm_bridge.driver.recovery.engine_diff import FORGOTTEN, unchanged_since
from cnm_bridge.driver.recovery.leftovers import RemoveLeftovers
from cnm_bridge.driver.recovery.rebuild_endpoint import RebuildEndpoint
from cnm_bridge.driver.recovery.trusted_engine import EngineAnswer, TrustedEngine
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue

log = structlog.get_logger()

_LOCKED_LIMIT_S: Final = 2.0
"""How long a round waits for a forgotten endpoint that is locked, perhaps because a plugin hangs."""
_WITHOUT_LINK: Final = "its container has no network any more; restart the container"
_NOT_OURS: Final = (
    "endpoints that Docker has lost cannot be found; make sure that --docker-host is the engine that uses this driver"
)
_FOREIGN: Final = (
    "the engine of --docker-host does not know it, so it stays until the engine that has made it removes it; a second "
    "engine should have an instance of cni-bridge of its own"
)


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Runs rounds of comparison and repair.

    Attributes:
        interval_s: The pause between two rounds, in seconds.
        grace_s: The pause between the two comparisons of a round, in seconds.
    """

    engine: TrustedEngine
    comparison: Comparison
    liveness: Liveness
    networks: NetworkService
    managed: ManagedNetworks
    teardowns: TeardownQueue
    rebuild_endpoint: RebuildEndpoint
    remove_leftovers: RemoveLeftovers
    unclaimed_addresses: UnclaimedAddresses
    interval_s: float
    grace_s: float
    _rounds: int = field(default=0, init=False)
    _last_round: float | None = field(default=None, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _begun: int = field(default=0, init=False)
    _ended: int = field(default=0, init=False)
    _round_ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _warned_before: frozenset[tuple[str, str]] = field(default=frozenset(), init=False)
    _warned_now: set[tuple[str, str]] = field(default_factory=set, init=False)
    _foreign_before: frozenset[NetworkId] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        self.managed.when_missing(self._wanted.set)

    @property
    def engine_is_up(self) -> bool:
        """Whether the daemon is connected to the engine's event stream."""
        return self.engine.is_up

    @property
    def rounds(self) -> int:
        """Number of completed rounds in which the engine answered, since the daemon started."""
        return self._rounds

    @property
    def last_round(self) -> float | None:
        """When the last of these rounds ended, in seconds since 1970; None if there was none."""
        return self._last_round

    async def run(self) -> None:
        """Run rounds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.follow(self._begin_with_engine))
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

    def _begin_with_engine(self) -> None:
        self.rebuild_endpoint.ask_again()
        self._wanted.set()

    async def wait_round(self) -> None:
        """Begin a round now, and wait for its end. If one is running, another follows it."""
        wanted = self._begun + 1
        self._wanted.set()
        while self._ended < wanted:
            await self._round_ended.wait()

    async def once(self) -> None:
        """Run one round."""
        await self.managed.create_missing()
        answer = await self._compare_and_repair()
        if answer is not None:
            self._rounds += 1
            self._last_round = time.time()
            await self.unclaimed_addresses.compare()
        self._warned_before, self._warned_now = frozenset(self._warned_now), set()

    async def _compare_and_repair(self) -> EngineAnswer | None:
        """Compare twice, and repair the differences found by both; return the engine's answer."""
        first = await self._compare()
        if not first:
            return first.answer
        await asyncio.sleep(self.grace_s)
        second = await self._compare()
        due = await self.liveness.without_in_use(unchanged_since(first.lost_records, second.lost_records))
        async with asyncio.TaskGroup() as tasks:
            for record in due:
                tasks.create_task(self._abandon(*second.forgotten[record.id]))
        for network_id in second.networks & first.networks:
            log.warning("network.forgotten", network_id=network_id, reason=FORGOTTEN)
            await self.networks.forget(network_id)
        for endpoint_id in second.unknown.keys() & first.unknown.keys():
            await self._try_rebuild(*second.unknown[endpoint_id])
        for attachment_id in (second.leftovers.keys() & first.leftovers.keys()) - second.unknown.keys():
            await self.remove_leftovers(second.leftovers[attachment_id])
        for endpoint_id in (second.without_link & first.without_link) - second.forgotten.keys():
            self._warn_once(endpoint_id, "endpoint.without_link", endpoint_id=endpoint_id, consequence=_WITHOUT_LINK)
        return second.answer

    async def _abandon(self, record: EndpointRecord, reason: str) -> None:
        log.warning("endpoint.forgotten", endpoint_id=record.id, phase=record.phase.value, reason=reason)
        with suppress(TimeoutError):  # the next round tries again
            async with asyncio.timeout(_LOCKED_LIMIT_S):
                await self.teardowns.abandon(record)

    async def _compare(self) -> Differences:
        """Compare once, and do what needs no second comparison."""
        found = await self.comparison.find_differences()
        unknown = {key: one for key, one in found.unknown.items() if self.rebuild_endpoint.may_help(one[1])}
        found = replace(found, unknown=unknown)
        if found.answer is not None and found.answer.view is None and found.has_networks:
            identity = found.answer.identity
            self._warn_once(identity, "engine.knows_no_network", engine=identity, consequence=_NOT_OURS)
        if found.answer is not None:  # one whose CreateNetwork has just been answered may not be listed yet
            for network_id in sorted(found.answer.foreign & self._foreign_before):
                self._warn_once(network_id, "network.of_another_engine", network_id=network_id, consequence=_FOREIGN)
            self._foreign_before = found.answer.foreign
        if found.answer is not None and found.answer.is_new:
            self._wanted.set()  # run another round: now the engine's own list of networks counts too
        for file in found.unwritten:
            await self._release(file)
        return found

    async def _release(self, unwritten: Path) -> None:
        """Release an address whose reservation is empty because host-local was killed."""
        try:
            if await asyncio.to_thread(remove_unwritten, unwritten):
                log.warning("reservation.unwritten", file=str(unwritten))
        except OSError as exc:
            self._warn_once(str(unwritten), "reservation.unwritten_kept", file=str(unwritten), error=str(exc))

    async def _try_rebuild(self, network: EngineNetwork, endpoint: EngineEndpoint) -> None:
        try:
            await self.rebuild_endpoint(network, endpoint)
        except (BridgeError, CniError, KernelError, StateError) as exc:
            self._warn_once(endpoint.id, "endpoint.not_rebuilt", endpoint_id=endpoint.id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
            log.exception("endpoint.not_rebuilt", endpoint_id=endpoint.id)

    def _warn_once(self, subject: str, event: str, **fields: str) -> None:
        """Log a problem that the daemon cannot repair, unless the previous round logged it too."""
        if (subject, event) not in self._warned_before | self._warned_now:
            log.warning(event, **fields)
        self._warned_now.add((subject, event))
