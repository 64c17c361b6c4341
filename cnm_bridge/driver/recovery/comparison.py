# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One comparison of the records with the engine and the kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import EngineEndpoint, EngineNetwork
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.teardown.liveness import DEAD, Liveness
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.engine_diff import FORGOTTEN, forgotten_endpoints, forgotten_networks, unknown_endpoints
from cnm_bridge.driver.recovery.leftover_search import Leftovers, LeftoverSearch
from cnm_bridge.driver.recovery.trusted_engine import EngineAnswer, TrustedEngine

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences that one comparison found.

    Attributes:
        forgotten: Endpoints that Docker or the kernel has lost: the record, and the reason for the log.
        networks: Networks that Docker has lost.
        unknown: Endpoints that Docker has and that have no record, or one without its sandbox, each with its network.
        without_link: Joined endpoints whose sandbox exists and whose link does not.
        leftovers: Objects of endpoints whose record was lost.
        unwritten: Reservations that are empty because host-local was killed, or is about to write them.
        has_networks: Whether there are records of networks.
        answer: The engine's answer, None if there was none.
    """

    forgotten: Mapping[EndpointId, tuple[EndpointRecord, str]] = field(default_factory=dict)
    networks: frozenset[NetworkId] = frozenset()
    unknown: Mapping[EndpointId, tuple[EngineNetwork, EngineEndpoint]] = field(default_factory=dict)
    without_link: frozenset[EndpointId] = frozenset()
    leftovers: Mapping[AttachmentId, Leftovers] = field(default_factory=dict)
    unwritten: tuple[Path, ...] = ()
    has_networks: bool = False
    answer: EngineAnswer | None = None

    @property
    def lost_records(self) -> tuple[EndpointRecord, ...]:
        """The records of the forgotten endpoints."""
        return tuple(record for record, _ in self.forgotten.values())

    def __bool__(self) -> bool:
        return bool(self.forgotten or self.networks or self.unknown or self.without_link or self.leftovers)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the records with the engine and the kernel."""

    store: Store
    engine: TrustedEngine
    liveness: Liveness
    networks: NetworkService
    search: LeftoverSearch

    async def find_differences(self) -> Differences:
        """Compare once. What cannot be read is logged, and counts as no difference.

        Raises:
            StateError: What the engine reports of a network cannot be written.
        """
        # Records first: a record stored later is not compared, so a new endpoint does not look like a lost one.
        endpoints, networks = self.store.endpoints(), self.store.networks()
        forgotten: dict[EndpointId, tuple[EndpointRecord, str]] = {}
        without_link: frozenset[EndpointId] = frozenset()
        try:
            forgotten |= {record.id: (record, DEAD) for record in await self.liveness.find_dead(endpoints)}
            without_link = frozenset(record.id for record in await self.liveness.find_without_link(endpoints))
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
        try:
            answer = await self.engine.ask(networks, endpoints)
        except EngineUnavailable as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return Differences(forgotten=forgotten, without_link=without_link)
        if answer.view is None:
            has_pools_only = not (networks or endpoints) and self._has_pools_of(answer.identity)
            return Differences(
                forgotten=forgotten,
                without_link=without_link,
                unwritten=await self._find_unwritten() if has_pools_only else (),
                has_networks=bool(networks),
                answer=answer,
            )
        leftovers = await self._find_leftovers()
        gone = {record.id: (record, FORGOTTEN) for record in forgotten_endpoints(answer.view, endpoints)}
        return Differences(
            leftovers=leftovers,
            forgotten=forgotten | gone,
            networks=frozenset(record.id for record in forgotten_networks(answer.view, networks, endpoints)),
            unknown=unknown_endpoints(answer.view, self.store.endpoints()),
            without_link=without_link,
            unwritten=await self._find_unwritten(),
            has_networks=bool(networks),
            answer=answer,
        )

    def _has_pools_of(self, engine: str) -> bool:
        """Return whether an engine has networks of other drivers whose addresses are from this one."""
        return any(pool.engine == engine for pool in self.store.ipam.pools())

    async def _find_leftovers(self) -> Mapping[AttachmentId, Leftovers]:
        try:
            return await self.search.find(self.networks.bound_names(), self.networks.bound_documents())
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return {}

    async def _find_unwritten(self) -> tuple[Path, ...]:
        return await self.search.find_unwritten(self.networks.bound_names(), self.networks.bound_documents())
