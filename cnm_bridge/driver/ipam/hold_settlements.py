# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Settles what keys have (`cni.sticky`): releases what is due, and notes what no container has any more.

It runs when an endpoint or a network has gone, and after each round of comparison: then a DEL or an ADD that has failed
is repeated.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface

import structlog

from cni_bridge_state import EndpointId, HoldId, HoldPhase, HoldRecord, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.hold import confirmed, is_renewed, without_holder
from cnm_bridge.driver.ipam.hold_reservations import HoldReservations
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

__all__ = ["HoldName", "HoldSettlements", "name_of"]

log = structlog.get_logger()

HoldName = tuple[NetworkId, str, str]
"""Network, CNI configuration and key. The ID of a hold is a random container ID, so that its IPAM plugin never takes it
for one whose record was lost."""


@dataclass(slots=True, kw_only=True)
class HoldSettlements:
    """Settles what keys have.

    Attributes:
        clock: Returns the time in seconds since 1970.
        locks: The lock of each key.
    """

    store: Store
    reservations: HoldReservations
    clock: Callable[[], float] = time.time
    locks: KeyedLocks[HoldName] = field(default_factory=KeyedLocks, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _gone: set[NetworkId] = field(default_factory=set, init=False)
    _has_networks: bool = field(default=False, init=False)
    _has_compared: bool = field(default=False, init=False)
    """Whether endpoints whose records were lost have been rebuilt, which have the same IDs again."""
    _torn_down: set[EndpointId] = field(default_factory=set, init=False)
    """Endpoints with holds that this run has torn down: their records are not lost."""
    _attached: set[EndpointId] = field(default_factory=set, init=False)
    """Endpoints with holds that are attached, which could not be stored with the hold."""
    _settling: set[HoldId] = field(default_factory=set, init=False)
    _again: set[HoldId] = field(default_factory=set, init=False)
    """Those of `_settling` that are to be looked at once more."""

    def find_holder(self, record: HoldRecord) -> EndpointId | None:
        """Return the endpoint that has what a key has; the record does not name it if it is older than the endpoint."""
        if record.phase is not HoldPhase.HELD:
            return None
        if record.holder is not None and self.store.find_endpoint(record.holder) is not None:
            return record.holder
        having = self.store.endpoints_with_address([str(ip_interface(address).ip) for address in record.addresses])
        return next((one.id for one in having if one.network_id == record.network_id), None)

    def note_not_created(self, endpoint_id: EndpointId) -> None:
        """Note that the creation of an endpoint with a hold has failed; `request` is to follow."""
        self._torn_down.add(endpoint_id)

    def note_attached(self, endpoint_id: EndpointId) -> None:
        """Note that an endpoint with a hold is attached, and that this could not be stored with the hold."""
        self._attached.add(endpoint_id)

    def request(self) -> None:
        """Have `run` settle soon."""
        self._wanted.set()

    def note_endpoint_gone(self, endpoint_id: EndpointId) -> None:
        """Have `run` settle soon, because the record of an endpoint has been removed."""
        if self.store.ipam.find_hold_of(endpoint_id) is not None:
            self._torn_down.add(endpoint_id)
        self._wanted.set()

    def note_network_gone(self, network_id: NetworkId) -> None:
        """Have `run` release the holds of a network soon, because its record has been removed."""
        self._gone.add(network_id)
        self._wanted.set()

    def note_round(self) -> None:
        """Have `run` settle soon: all networks of the engine have records now, so one without is gone."""
        self._has_networks = self._has_compared = True
        self._wanted.set()

    async def run(self) -> None:
        """Settle what the previous run has left, and then whenever it is wanted, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wanted.clear()
                self.begin(tasks)
                await self._wanted.wait()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to settle what is due. Errors are logged, and tried again later.

        What hangs delays nothing else; it is looked at again when it has ended.
        """
        if self._has_networks:
            self._has_networks = False
            self._gone |= {one.network_id for one in self.store.ipam.holds()}
        self._gone -= {one.id for one in self.store.networks()}  # Docker may have made it again
        for record in self.store.ipam.holds():
            if record.id in self._settling:
                self._again.add(record.id)
            elif self._may_be_due(record):
                self._settling.add(record.id)
                tasks.create_task(self._settle(record))
        left = self.store.ipam.holds()
        self._gone &= {one.network_id for one in left}
        holders = {one.holder for one in left if one.holder is not None}
        self._torn_down &= holders
        self._attached &= holders

    def _may_be_due(self, record: HoldRecord) -> bool:
        """Return whether there may be something to settle; most holds have a container, or are kept without a limit."""
        has_lost_holder = record.holder is not None and self.store.find_endpoint(record.holder) is None
        is_idle = record.holder is None and (record.keep_s is not None or record.network_id in self._gone)
        return record.phase is not HoldPhase.HELD or has_lost_holder or is_idle or self._is_joined(record)

    async def _settle(self, record: HoldRecord) -> None:
        """Settle one hold; once more if that was wanted meanwhile, which must not have others settled again."""
        try:
            await self._try(record)
            while record.id in self._again:
                self._again.discard(record.id)
                await self._try(record)
        finally:
            self._settling.discard(record.id)

    async def _try(self, record: HoldRecord) -> None:
        try:
            stored = self.store.ipam.find_hold(record.id)
            if stored is not None and self._is_set_aside(stored):
                await self.reservations.release(stored)
                return
            async with self.locks.hold(name_of(record)):
                await self._settle_one(record.id)
        except (CniError, KernelError, StateError) as exc:
            facts = {"hold_id": record.id, "key": record.key, "configuration": record.section, "error": str(exc)}
            if is_renewed(record):
                log.warning("hold.restore_pending", **facts)
            else:
                log.warning("hold.release_pending", **facts)
        except Exception:  # a bug must be logged; it must not end the daemon or what is due for others
            log.exception("hold.bug", hold_id=record.id)

    def _is_set_aside(self, record: HoldRecord) -> bool:
        """Return whether a key continues under another ID, so that its containers need not wait for this DEL."""
        return record.phase is HoldPhase.RELEASING and any(
            name_of(one) == name_of(record) and one.phase is not HoldPhase.RELEASING for one in self.store.ipam.holds()
        )

    async def _settle_one(self, record_id: HoldId) -> None:
        record = self.store.ipam.find_hold(record_id)
        if record is None:
            return
        if record.phase is not HoldPhase.HELD and not is_renewed(record):
            await self.reservations.release(record)
            return
        if self._is_joined(record) and record.change is not None:  # that was not stored at Join
            record = confirmed(record, record.change)
            await self.store.ipam.put_hold(record)
        holder = self.find_holder(record)
        if holder is not None:
            await self._note_in_use(record, holder)
            return
        is_certain = self._has_compared or record.holder in self._torn_down
        idle = without_holder(record, self.clock())
        if idle != record:
            record = idle
            await self.store.ipam.put_hold(record)
        is_expired = record.expires_at is not None and record.expires_at <= self.clock()
        if (is_expired and is_certain) or record.network_id in self._gone:
            await self.reservations.release(record)
        elif record.phase is HoldPhase.PENDING:
            await self.reservations.restore(record)

    async def _note_in_use(self, record: HoldRecord, holder: EndpointId) -> None:
        """Store that the time of a hold begins again when the endpoint that has it goes, though it does not name it.

        Then the hold is older than the endpoint, or the endpoint's record was lost and is made again.
        """
        is_counted = record.holder is None and record.expires_at is not None
        if is_counted and self.store.get_endpoint(holder).phase is Phase.JOINED:
            await self.store.ipam.put_hold(replace(record, expires_at=None))

    def _is_joined(self, record: HoldRecord) -> bool:
        """Return whether the endpoint that has a hold is or was attached, and what it changes is not stored."""
        if record.change is None or record.holder is None:
            return False
        holder = self.store.find_endpoint(record.holder)
        return record.holder in self._attached or (holder is not None and holder.phase is Phase.JOINED)


def name_of(record: HoldRecord) -> HoldName:
    """Return the name of a hold."""
    return record.network_id, record.section, record.key
