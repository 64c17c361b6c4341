# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tears down dead endpoints because a new endpoint needs an address or a port that one may hold.

After a crash, dockerd forgets its endpoints silently and restarts its containers within a second, long before the next
reconciliation. The daemon searches for dead endpoints only after a refusal.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue

log = structlog.get_logger()

_DEAD: Final = "its container does not run, and a new endpoint needs an address or a port that it may hold"


@dataclass(frozen=True, slots=True)
class DeadEndpoints:
    """Finds dead endpoints, and tears them down."""

    store: Store
    liveness: Liveness
    teardowns: TeardownQueue
    _search: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """One call at a time searches: the others find what it has begun."""

    async def tear_down(self, endpoints: Iterable[EndpointRecord], until: float) -> bool:
        """Tear down the dead ones of these endpoints; return whether any is gone.

        Waits until each is gone or has failed, or until a moment in event loop time; the teardowns continue in the
        background.
        """
        dead = await self._begin(endpoints, until)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self.teardowns.wait_left(dead)
        return any(self.store.find_endpoint(endpoint_id) is None for endpoint_id in dead)

    async def begin_on(self, network: str, asking: EndpointId, until: float) -> None:
        """Begin, until a moment in event loop time, to tear down the dead endpoints of a CNI network but `asking`."""
        async with self._search:
            here = (record for record in self.store.endpoints() if record.attachment.network == network)
            await self._begin((record for record in here if record.id != asking), until)

    async def _begin(self, endpoints: Iterable[EndpointRecord], until: float) -> tuple[EndpointId, ...]:
        """Begin to tear down the dead ones of these endpoints; return them, none if that cannot be found out."""
        records, dead = tuple(endpoints), dict[EndpointId, EndpointRecord]()
        try:
            async with asyncio.timeout_at(until):
                gone = await self.liveness.without_in_use(await self.liveness.find_dead(records))
                dead = {record.id: record for record in (*gone, *await self.liveness.find_without_container(records))}
                async with asyncio.TaskGroup() as tasks:  # one of them may be locked for long
                    for record in dead.values():
                        log.warning("endpoint.dead", endpoint_id=record.id, reason=_DEAD)
                        tasks.create_task(self.teardowns.tear_down(record))
        except TimeoutError:
            pass
        except KernelError as exc:  # the caller's own error is reported instead
            log.warning("contention.kernel_unread", error=str(exc))
        return tuple(dead)
