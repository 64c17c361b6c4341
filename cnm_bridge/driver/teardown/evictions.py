# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Evicts dead endpoints: tears them down because a new endpoint needs an address or a port that one may hold.

After a crash, dockerd forgets its endpoints silently and restarts its containers within a second, long before the next
reconciliation. Until then dead endpoints hold what the new ones need: ports, static addresses, or the last addresses of
a small subnet. The daemon searches for dead endpoints only after a refusal.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.attach.liveness import Liveness
from cnm_bridge.driver.teardown.in_use_check import InUseCheck
from cnm_bridge.driver.teardown.queue import TeardownQueue

log = structlog.get_logger()

_DEAD: Final = "its container does not run, and a new endpoint needs an address or a port that it may hold"

LeftoverEviction = Callable[[str, float], Awaitable[frozenset[EndpointId]]]
"""Begins to tear down the leftovers on a CNI network until a moment; returns the endpoints that are torn down."""


async def _evict_none(_network: str, _until: float) -> frozenset[EndpointId]:
    return frozenset()


@dataclass(slots=True)
class Evictions:
    """Tears down dead endpoints whose addresses or ports a new one needs."""

    store: Store
    liveness: Liveness
    in_use: InUseCheck
    teardowns: TeardownQueue
    _evict_leftovers: LeftoverEviction = field(default=_evict_none, init=False)
    _evicting: dict[EndpointId, str] = field(default_factory=dict, init=False)
    """The dead endpoints whose teardown any call has begun, and their CNI networks."""
    _counts: Counter[str] = field(default_factory=Counter, init=False)

    def when_none_is_dead(self, evict_leftovers: LeftoverEviction) -> None:
        """Set the callback that begins to tear down the endpoints of a CNI network whose records are lost.

        It begins no more after a moment in event loop time, and is never cancelled. It returns these endpoints, and
        raises KernelError if they cannot be found.
        """
        self._evict_leftovers = evict_leftovers

    async def evict_dead(
        self,
        endpoints: Iterable[EndpointRecord],
        limit_s: float,
        *,
        until_all: bool = False,
        leaving: Collection[EndpointId] = (),
        or_leftovers_of: str | None = None,
    ) -> bool:
        """Tear down the dead ones of these endpoints; return whether any is gone.

        It returns as soon as one is gone, so a plugin that hangs does not keep what the others held. Those that another
        call is tearing down are waited for, too. A teardown that fails or takes longer continues in the background.

        Args:
            endpoints: The endpoints, dead or not.
            limit_s: The longest wait, in seconds.
            until_all: Wait until all of them are gone or have failed instead.
            leaving: Endpoints that are being torn down. While dead ones are, one of these that is gone counts as well.
            or_leftovers_of: If none is dead, tear down the endpoints of this CNI network whose records are lost: the
                state is older than the endpoints, and dockerd may have forgotten them.
        """
        wanted = tuple(endpoints)
        evicting = self.find_evicting()
        begun = {record.id for record in wanted if record.id in evicting}
        dead: dict[EndpointId, EndpointRecord] = {}
        deadline = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(deadline):
                dead = await self._find_dead(wanted)
            if not begun and not dead and or_leftovers_of is not None:
                begun.update(await self._evict_leftovers(or_leftovers_of, deadline))
                self._evicting.update(dict.fromkeys(begun, or_leftovers_of))
            if begun or dead:
                begun.update(leaving)
            async with asyncio.timeout_at(deadline):
                await self._wait_gone(begun, dead, until_all=until_all)
        except TimeoutError:
            pass
        except KernelError as exc:  # the plugin's own error is reported instead
            log.warning("contention.kernel_unread", error=str(exc))
            return False
        return any(self.store.find_endpoint(endpoint_id) is None for endpoint_id in begun | dead.keys())

    def find_evicting(self) -> frozenset[EndpointId]:
        """Return the dead endpoints that are being torn down for any call."""
        self._count_gone()
        return frozenset(self._evicting)

    def count(self, network: str) -> int:
        """Return how many dead endpoints of a CNI network have been torn down for any call."""
        self._count_gone()
        return self._counts[network]

    def _count_gone(self) -> None:
        leaving = self.teardowns.leaving
        for endpoint_id in [one for one in self._evicting if one not in leaving]:
            network = self._evicting.pop(endpoint_id)
            self._counts[network] += self.store.find_endpoint(endpoint_id) is None

    async def _wait_gone(
        self, begun: Iterable[EndpointId], dead: Mapping[EndpointId, EndpointRecord], *, until_all: bool
    ) -> None:
        """Begin to tear the dead ones down; wait until one of these endpoints is gone, or each is or has failed."""
        async with asyncio.TaskGroup() as tasks:  # one of them may be locked for long
            waits = [tasks.create_task(self._evict(record)) for record in dead.values()]
            waits += [
                tasks.create_task(self._wait_one_gone(endpoint_id)) for endpoint_id in begun if endpoint_id not in dead
            ]
            for wait in asyncio.as_completed(waits):
                if await wait and not until_all:
                    break
            for task in waits:
                task.cancel()

    async def _find_dead(self, wanted: Collection[EndpointRecord]) -> dict[EndpointId, EndpointRecord]:
        gone = await self.in_use.without_in_use(await self.liveness.find_dead(wanted))
        return {record.id: record for record in (*gone, *await self.liveness.find_abandoned(wanted))}

    async def _evict(self, record: EndpointRecord) -> bool:
        """Tear down a dead endpoint; return whether it is gone, or False if that has failed."""
        log.warning("endpoint.dead", endpoint_id=record.id, reason=_DEAD)
        await self.teardowns.abandon(record)
        self._evicting[record.id] = record.attachment.network
        return await self._wait_one_gone(record.id)

    async def _wait_one_gone(self, endpoint_id: EndpointId) -> bool:
        await self.teardowns.wait_left([endpoint_id])
        return self.store.find_endpoint(endpoint_id) is None
