# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds addresses and pools that Docker has requested and lost: for a call that needs one, and in each round.

Docker loses an address if dockerd is killed before it stores it, or if this daemon does not run while an engine boots.
An address that Docker has just received is in no list yet. So a round releases what was requested some time ago, what
two comparisons have found, and what no container has.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import structlog

from cni_bridge_state import AddressPhase, AddressPoolRecord, AddressRecord, AddressUse, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.ipam.unclaimed import Unclaimed, find_unclaimed
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

Record = TypeVar("Record", AddressRecord, AddressPoolRecord)


@dataclass(slots=True)
class LostAddresses:
    """Finds, among the records of a requested address, what an earlier run of the engine had.

    An engine releases the addresses of its previous run once, when it boots (moby `libnetwork/endpoint.go`,
    releaseAddress). If this daemon did not run then, their records stay. `UnclaimedAddresses` finds them only when the
    engine's API answers, which is after the restart policies have started their containers.
    """

    kernel: Kernel
    _seen: tuple[ProcessRecord, frozenset[str]] | None = field(default=None, init=False)
    """An engine, and the addresses in the sandboxes at its first request: later ones are not of an earlier run."""

    async def find(self, holders: Iterable[AddressRecord], caller: ProcessRecord | None) -> Sequence[AddressRecord]:
        """Return the records that are older than the engine that calls, and whose address no container has.

        There are none if the engine or the sandboxes are not visible.
        """
        if caller is None:
            return ()
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        started = int(booted + caller.started / _TICKS_PER_S)  # records have whole seconds, too
        earlier = [
            one
            for one in holders
            if one.phase is AddressPhase.RESERVED and one.use is AddressUse.ANY and one.created_at < started
        ]
        used = await self._find_used(caller) if earlier else None
        if used is None:
            return ()
        lost = [one for one in earlier if one.address is not None and str(one.address.ip) not in used]
        for one in lost:
            log.warning("address.unclaimed", section=one.section, address=str(one.address), pool_id=one.pool)
        return lost

    async def _find_used(self, caller: ProcessRecord) -> frozenset[str] | None:
        """Return the addresses that containers had when an engine asked first; None if that cannot be seen."""
        if self._seen is None or self._seen[0] != caller:
            try:
                sandboxes = await self.kernel.look_into_sandboxes()
            except KernelError as exc:
                log.info("reconcile.kernel_unread", error=str(exc))
                return None
            if sandboxes.unread or sandboxes.inhabited is None:  # one of them may have the address
                return None
            self._seen = caller, sandboxes.addresses
        return self._seen[1]


@dataclass(slots=True, kw_only=True)
class UnclaimedAddresses:
    """Compares pools and addresses with the engine, and releases what it has lost.

    Attributes:
        driver: This driver's name in Docker.
        grace_s: The pause between two comparisons, in seconds.
        settled_s: The age from which on an address that the engine does not have is unclaimed, in seconds.
        uncertain: Addresses that the engine of `--docker-host` does not have and that may be another engine's.
    """

    store: Store
    engine: Engine
    kernel: Kernel
    releases: Releases
    driver: str
    grace_s: float
    settled_s: float
    uncertain: tuple[AddressRecord, ...] = ()
    _warned: frozenset[str] = field(default=frozenset(), init=False)

    def forget(self, record: AddressRecord) -> None:
        """Drop an address that has been released."""
        self.uncertain = tuple(one for one in self.uncertain if one.id != record.id)

    async def compare(self) -> None:
        """Compare twice, and release what both comparisons have found. Without an answer of the engine, do nothing.

        Raises:
            StateError: A record cannot be written.
        """
        if not self.store.ipam.pools() and self.store.ipam.is_empty:
            self.uncertain = ()
            return
        try:
            first = await self._look()
            if not first:
                self.uncertain = ()
                return
            await asyncio.sleep(self.grace_s)
            second = await self._look()
            used = (await self.kernel.look_into_sandboxes()).addresses if second.addresses else frozenset[str]()
        except (EngineUnavailable, KernelError) as exc:
            log.info("reconcile.engine_unread", error=str(exc))
            return
        self.uncertain = _in_both(first.uncertain, second.uncertain)
        await self._release(_in_both(first.addresses, second.addresses), used)
        for pool in _in_both(first.pools, second.pools):
            if not self.store.ipam.in_pool(pool.id):
                log.warning("pool.forgotten", pool_id=pool.id)
                await self.store.ipam.remove_pool(pool.id)

    async def _look(self) -> Unclaimed:
        before = time.time() - self.settled_s
        pools = [one for one in self.store.ipam.pools() if one.created_at <= before]
        addresses = [one for one in self.store.ipam.addresses() if one.created_at <= before]
        identity = await self.engine.identity()
        networks = await self.engine.ipam_networks(self.driver)
        found = await asyncio.to_thread(find_unclaimed, pools, addresses, networks, identity)  # there may be thousands
        for pool in found.identified:
            if self.store.ipam.find_pool(pool.id) is pool:
                await self.store.ipam.put_pool(replace(pool, engine=identity))
        return found

    async def _release(self, unclaimed: Sequence[AddressRecord], used: frozenset[str]) -> None:
        kept = frozenset(one.id for one in unclaimed if one.address is not None and str(one.address.ip) in used)
        for record in unclaimed:
            facts = {"section": record.section, "address": str(record.address), "pool_id": record.pool}
            if record.id not in kept:
                log.warning("address.unclaimed", **facts)
            elif record.id not in self._warned:
                log.warning("address.unclaimed_kept", **facts, reason="a container has it")
        self._warned = kept
        await self.releases.release_all([one for one in unclaimed if one.id not in kept])


def _in_both(earlier: Sequence[Record], later: Sequence[Record]) -> tuple[Record, ...]:
    """Return the later records that are also among the earlier ones; one that was stored again in between is not."""
    seen: dict[str, Record] = {one.id: one for one in earlier}
    return tuple(one for one in later if seen.get(one.id) is one)
