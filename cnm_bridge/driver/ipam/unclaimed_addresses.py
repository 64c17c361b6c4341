# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds, in each round, addresses and pools that Docker has requested and lost.

Docker loses an address if dockerd is killed before it stores it, or if this daemon does not run while an engine boots.
An address that Docker has just received is in no list yet. So a round releases what was requested some time ago, what
two comparisons have found, and what no container has.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from cni_bridge_state import AddressPoolRecord, AddressRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable, KernelError
from cnm_bridge.core.ipam.unclaimed import Unclaimed, find_unclaimed
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

Record = TypeVar("Record", AddressRecord, AddressPoolRecord)


@dataclass(slots=True, kw_only=True)
class UnclaimedAddresses:
    """Compares pools and addresses with the engine, and releases what it has lost."""

    store: Store
    engine: Engine
    kernel: Kernel
    releases: Releases
    driver: str
    """This driver's name in Docker."""
    grace_s: float
    """The pause between two comparisons."""
    settled_s: float
    """The age from which on an address that the engine does not have is unclaimed."""
    perhaps_foreign: tuple[AddressRecord, ...] = ()
    """Addresses that the engine of `--docker-host` does not have and that may be another engine's."""
    _warned: frozenset[str] = field(default=frozenset(), init=False)

    def forget(self, record: AddressRecord) -> None:
        """Drop an address that has been released."""
        self.perhaps_foreign = tuple(other for other in self.perhaps_foreign if other.id != record.id)

    async def compare(self) -> None:
        """Compare twice, and release what both comparisons have found. Without an answer of the engine, do nothing.

        Raises `StateError` if a record cannot be written.
        """
        if not self.store.ipam.pools.all() and self.store.ipam.is_empty:
            self.perhaps_foreign = ()
            return
        try:
            first = await self._look()
            if not first:
                self.perhaps_foreign = ()
                return
            await asyncio.sleep(self.grace_s)
            second = await self._look()
            used = (await self.kernel.look_into_sandboxes()).addresses if second.addresses else frozenset[str]()
        except (EngineUnavailable, KernelError) as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return
        self.perhaps_foreign = _in_both(first.perhaps_foreign, second.perhaps_foreign)
        await self._release(_in_both(first.addresses, second.addresses), used)
        for pool in _in_both(first.pools, second.pools):
            if not self.store.ipam.in_pool(pool.id):
                log.warning("pool.dead", pool_id=pool.id)
                await self.store.ipam.pools.remove(pool.id)

    async def _look(self) -> Unclaimed:
        before = time.time() - self.settled_s
        pools = [pool for pool in self.store.ipam.pools.all() if pool.created_at <= before]
        addresses = [address for address in self.store.ipam.addresses() if address.created_at <= before]
        identity = await self.engine.identity()
        networks = await self.engine.ipam_networks(self.driver)
        found = await asyncio.to_thread(find_unclaimed, pools, addresses, networks, identity)  # there may be thousands
        for pool in found.identified:
            if self.store.ipam.pools.find(pool.id) is pool:
                await self.store.ipam.pools.put(replace(pool, engine=identity))
        return found

    async def _release(self, unclaimed: Sequence[AddressRecord], used: frozenset[str]) -> None:
        kept = frozenset(
            record.id for record in unclaimed if record.address is not None and str(record.address.ip) in used
        )
        for record in unclaimed:
            facts = {"section": record.section, "address": str(record.address), "pool_id": record.pool}
            if record.id not in kept:
                log.warning("address.dead", **facts)
            elif record.id not in self._warned:
                log.warning("address.dead_kept", **facts, reason="a container has it")
        self._warned = kept
        await self.releases.release_all([record for record in unclaimed if record.id not in kept])


def _in_both(earlier: Sequence[Record], later: Sequence[Record]) -> tuple[Record, ...]:
    """Return the later records that are also among the earlier ones; one that was stored again in between is not."""
    seen: dict[str, Record] = {record.id: record for record in earlier}
    return tuple(record for record in later if seen.get(record.id) is record)
