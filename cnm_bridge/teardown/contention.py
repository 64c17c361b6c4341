# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Resolves contention: a new endpoint needs what an endpoint that is being deleted, or is dead, still holds.

DeleteEndpoint is answered before its plugins have run (docs/decisions, 13). Most later calls do not notice, because
plugins are made for ADD and DEL of several containers at the same time. A new endpoint that needs a certain address
waits for the endpoint that holds it. One whose plugins refuse something waits for endpoints that are being deleted,
and tries again. dockerd holds a lock of the network meanwhile, so all waits together have a limit.

A dockerd that was killed starts again, forgets its former endpoints silently, and starts containers anew, all within a
second. Reconcile comes later. Until then dead endpoints hold what new ones need: ports, static addresses, or the last
addresses of a small subnet. They are looked for only after something was refused.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

import structlog

from cnm_bridge.errors import Refused
from cnm_bridge.kernel import IpAddress, KernelError
from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.liveness import Liveness
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.teardown.teardown import first_pending_plugin
from state import EndpointId, EndpointRecord, Store

__all__ = ["WAIT_LIMIT_S", "Contention", "ContentionResolver"]

log = structlog.get_logger()

_DEAD: Final = "its container does not run, and a new endpoint needs what it has"
_WHAT_TO_DO: Final = (
    "try again when `cni-bridge status` does not show that endpoint any more; "
    "if it stays, its plugin hangs or fails, and the log tells more"
)

WAIT_LIMIT_S: Final = 10.0
"""How long one call waits for other endpoints, in all. dockerd keeps other calls for the network waiting meanwhile."""

_ELSEWHERE_LIMIT_S: Final = 1.0
"""How much of that it waits for endpoints that leave other networks. They seldom have what was refused."""


class ContentionResolver:
    """Waits for pending teardowns, and begins those of dead endpoints.

    Args:
        store: The records.
        liveness: Finds the endpoints that are dead.
        in_use: Tells what is in use, wherever its sandbox is.
        teardowns: Tears endpoints down.
    """

    def __init__(self, store: Store, liveness: Liveness, in_use: InUseCheck, teardowns: TeardownQueue) -> None:
        self._store = store
        self._liveness = liveness
        self._in_use = in_use
        self._teardowns = teardowns

    def begin(self, network: str) -> "Contention":
        """Return what waits for one new endpoint on a CNI network; its time runs from now on."""
        return Contention(self, self._store, self._teardowns, network)

    async def wait_for(self, endpoints: Iterable[EndpointId], limit_s: float) -> None:
        """Wait until some endpoints are gone or their tear down has failed, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._teardowns.wait_left(endpoints)

    async def evict_dead(self, endpoints: Iterable[EndpointRecord], limit_s: float) -> bool:
        """Tear down those of some endpoints that are dead; return whether any is gone.

        What fails, or takes longer than that, goes on in the background.
        """
        dead: dict[EndpointId, EndpointRecord] = {}
        try:
            async with asyncio.timeout(limit_s):
                dead = await self._find_dead(tuple(endpoints))
                async with asyncio.TaskGroup() as tasks:  # the lock of one may be held for long
                    for record in dead.values():
                        tasks.create_task(self._evict(record))
                await self._teardowns.wait_left(dead)
        except TimeoutError:
            pass
        except KernelError as exc:  # then the plugin's refusal says what is missing
            log.warning("endpoint.room_unknown", error=str(exc))
            return False
        return any(self._store.find_endpoint(endpoint_id) is None for endpoint_id in dead)

    async def _find_dead(self, wanted: Collection[EndpointRecord]) -> dict[EndpointId, EndpointRecord]:
        gone = await self._in_use.without_in_use(await self._liveness.find_dead(wanted))
        return {record.id: record for record in (*gone, *await self._liveness.find_abandoned(wanted))}

    async def _evict(self, record: EndpointRecord) -> None:
        log.warning("endpoint.dead", endpoint_id=record.id, reason=_DEAD)
        await self._teardowns.abandon(record)


class Contention:
    """What one new endpoint waits for; all waits together end after `WAIT_LIMIT_S`."""

    def __init__(self, resolver: ContentionResolver, store: Store, teardowns: TeardownQueue, network: str) -> None:
        self._resolver = resolver
        self._store = store
        self._teardowns = teardowns
        self._network = network
        self._deadline = asyncio.get_running_loop().time() + WAIT_LIMIT_S
        self._here: set[EndpointId] = set()
        self._elsewhere: set[EndpointId] = set()
        self._was_refused = False
        self._has_looked_for_dead = False

    async def wait_for_addresses(self, addresses: Collection[IpAddress]) -> None:
        """Wait until no endpoint with any of some addresses is being deleted.

        `firewall` finds its rules by address: the DEL of such an endpoint would take those of a new one away. One whose
        DEL has failed is not waited for (`owners.py`).

        Raises:
            Refused: One is being deleted after all the time that there is.
        """
        wanted = frozenset(map(str, addresses))
        holders = [record.id for record in self._store.endpoints_with_address(wanted)]
        if await self._in_time(self._teardowns.wait_left(holders)):
            return
        for record in self._records(self._teardowns.leaving.intersection(holders)):
            shared = ", ".join(sorted(wanted.intersection(record.addresses)))
            raise Refused(f"address {shared} is not free yet: {_describe(record)}; {_WHAT_TO_DO}")

    def note_leaving(self) -> None:
        """Remember what is being deleted when the plugins begin for the first time: it may have what they refuse."""
        if not self._was_refused:
            self._remember()

    async def wait_for_room(self) -> bool:
        """Wait, after the plugins have refused something, until it makes sense to ask them once more.

        That is so when an endpoint has left the CNI network, or could not but was tried; where there is none, when
        dead endpoints of the network were torn down; where there are none either, once, when some have left other
        networks within a second.
        What begins to leave after the first refusal is not waited for: on a busy host that would have no end.

        Returns:
            False if there is nothing to wait for any more, or no time.
        """
        if not self._was_refused:
            self._remember()
            self._was_refused = True
        if await self._has_left(self._here):
            return True
        if not self._has_looked_for_dead and self._rest_s > 0:
            self._has_looked_for_dead = True
            here = (record for record in self._store.endpoints() if record.cni_network == self._network)
            if await self._resolver.evict_dead(here, self._rest_s):
                return True
        return await self._have_left_elsewhere()

    def describe_leaving(self) -> str:
        """Return what is still being deleted on the CNI network, for the user; empty if nothing is."""
        for record in self._records(self._of_network(self._teardowns.leaving)):
            return f"perhaps what it needs is not free yet: {_describe(record)}; {_WHAT_TO_DO}"
        return ""

    def _remember(self) -> None:
        leaving = self._teardowns.leaving
        here = self._of_network(leaving)
        self._here |= here
        self._elsewhere |= leaving - here - self._here

    async def _has_left(self, endpoints: set[EndpointId]) -> bool:
        """Wait until any of some endpoints has left, and take all out that have; return whether one has."""
        if not endpoints or self._rest_s <= 0 or not await self._in_time(self._teardowns.wait_any_left(endpoints)):
            return False
        endpoints &= self._teardowns.leaving
        return True

    async def _have_left_elsewhere(self) -> bool:
        """Wait for a moment, the first time, for endpoints that leave other networks; return whether any has left.

        Most refusals have nothing to do with these, and dockerd holds a lock of this network meanwhile.
        """
        elsewhere, self._elsewhere = self._elsewhere, set()
        if not elsewhere or self._rest_s <= 0:
            return False
        limit = min(self._deadline, asyncio.get_running_loop().time() + _ELSEWHERE_LIMIT_S)
        await self._in_time(self._teardowns.wait_left(elsewhere, go_first=False), limit)
        return not elsewhere <= self._teardowns.leaving

    async def _in_time(self, wait: Awaitable[None], limit: float | None = None) -> bool:
        try:
            async with asyncio.timeout_at(self._deadline if limit is None else limit):
                await wait
        except TimeoutError:
            return False
        return True

    @property
    def _rest_s(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()

    def _of_network(self, endpoints: Iterable[EndpointId]) -> frozenset[EndpointId]:
        return frozenset(record.id for record in self._records(endpoints) if record.cni_network == self._network)

    def _records(self, endpoints: Iterable[EndpointId]) -> Iterator[EndpointRecord]:
        """Give the records of those of some endpoints that are not gone."""
        return filter(None, map(self._store.find_endpoint, endpoints))


def _describe(record: EndpointRecord) -> str:
    plugin = first_pending_plugin(record)
    reason = f"plugin {plugin} has not completed its DEL" if plugin else "its record is not removed"
    return f"endpoint {record.id} is being deleted, {reason}"
