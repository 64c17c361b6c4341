# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Holds the addresses of keys (`cni.sticky`) from the first container with a key on, until they are released.

```
first container     store PENDING ─▶ ADD of the IPAM plugin ─▶ store HELD, with its endpoint ─▶ attach with static
its endpoint goes   store HELD, without an endpoint, and until when
next container      store HELD, with its endpoint ─▶ attach with static
released            store RELEASING ─▶ DEL of the IPAM plugin ─▶ remove the record
```

`settle` does what is due. It runs when an endpoint or a network has gone, and after each round of comparison: then a
DEL that has failed is repeated.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface
from secrets import token_hex

import structlog

from cni_bridge_state import EndpointId, HoldId, HoldPhase, HoldRecord, NetworkId, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cnm_bridge.core.errors import Refused, endpoint_option
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.hold import (
    hold_mac,
    is_current,
    plan_hold,
    refuse_changed_hold,
    with_hold,
)
from cnm_bridge.core.planning.options.cni_options import STICKY
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.driver.teardown.contention import Contention
from cnm_bridge.driver.teardown.evictions import Evictions
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()

_Name = tuple[NetworkId, str, str]
"""Network, CNI configuration and key. The ID of a hold is a random container ID, so that its IPAM plugin never takes it
for one whose record was lost."""


@dataclass(slots=True, kw_only=True)
class Holds:
    """Reserves, hands out and releases what keys have.

    Attributes:
        clock: Returns the time in seconds since 1970.
    """

    store: Store
    plugins: PluginRuns
    evictions: Evictions
    clock: Callable[[], float] = time.time
    _locks: KeyedLocks[_Name] = field(default_factory=KeyedLocks, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _gone: set[NetworkId] = field(default_factory=set, init=False)
    _has_networks: bool = field(default=False, init=False)
    _has_compared: bool = field(default=False, init=False)
    """Whether endpoints whose records were lost have been rebuilt, which have the same IDs again."""

    @asynccontextmanager
    async def holding(self, request: CreateEndpoint, plan: Plan) -> AsyncIterator[Plan]:
        """Yield the plan of an endpoint with what its key has, for the creation of the endpoint.

        A plan without a key is yielded as it is. If the endpoint cannot be created, a new key gets nothing.

        Raises:
            Refused: Another endpoint has the key, or what the key has does not suit the plan.
            CniError: The IPAM plugin has no address, or failed.
            KernelError, StateError: As `PluginRuns.add` and `Store.ipam.put_hold`.
        """
        key = plan.options.sticky
        if key is None:
            yield plan
            return
        async with self._locks.hold((request.network_id, plan.configuration.name, key)):
            contention = Contention(self.evictions, plan.configuration.name)
            before = await self._find(request, plan, key, contention)
            if before is None or not is_current(plan, before):
                record = await self._reserve(request, plan, key, before, contention)
            else:
                record = before
            mac = plan.requested.mac.lower() if plan.requested.mac else record.mac
            record = replace(
                record, holder=request.endpoint_id, keep_s=plan.options.sticky_for, expires_at=None, mac=mac
            )
            await self.store.ipam.put_hold(record)
            try:
                yield with_hold(plan, record)
            except BaseException:
                if before is None:
                    await self.store.ipam.put_hold(replace(record, keep_s=0))
                raise
            finally:
                self._wanted.set()

    async def release(self, record: HoldRecord) -> None:
        """Release what a key has.

        Raises:
            Refused: A container has it; nothing has been changed.
            CniError, KernelError, StateError: It could not be released, and will be tried again.
        """
        async with self._locks.hold(_name(record)):
            stored = self.store.ipam.find_hold(record.id)
            if stored is None:
                return
            if self._find_holder(stored) is not None:
                raise Refused(
                    f"key {stored.key} is in use: `cni-bridge ls --sticky` shows its container; remove that first; "
                    "nothing has been changed"
                )
            await self._release(stored)

    def note_endpoint_gone(self, _: EndpointId) -> None:
        """Have `run` settle soon, because the record of an endpoint has been removed."""
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
        while True:
            self._wanted.clear()
            await self.settle()
            await self._wanted.wait()

    async def settle(self) -> None:
        """Release what is due, and note what no container has any more. Errors are logged, and tried again later."""
        if self._has_networks:
            self._has_networks = False
            self._gone |= {one.network_id for one in self.store.ipam.holds()} - {
                one.id for one in self.store.networks()
            }
        async with asyncio.TaskGroup() as tasks:
            for record in self.store.ipam.holds():
                if self._may_be_due(record):
                    tasks.create_task(self._settle(record))
        self._gone &= {one.network_id for one in self.store.ipam.holds()}

    def _may_be_due(self, record: HoldRecord) -> bool:
        """Return whether there may be something to settle; most holds have a container, or are kept without a limit."""
        has_lost_holder = record.holder is not None and self.store.find_endpoint(record.holder) is None
        is_idle = record.holder is None and (record.expires_at is not None or record.network_id in self._gone)
        return record.phase is not HoldPhase.HELD or has_lost_holder or is_idle

    async def _settle(self, record: HoldRecord) -> None:
        try:
            async with self._locks.hold(_name(record)):
                await self._settle_one(record.id)
        except (CniError, KernelError, StateError) as exc:
            log.warning("hold.release_pending", hold_id=record.id, error=str(exc))
        except Exception:  # a bug must be logged; it must not end the daemon or what is due for others
            log.exception("hold.bug", hold_id=record.id)

    async def _settle_one(self, record_id: HoldId) -> None:
        record = self.store.ipam.find_hold(record_id)
        if record is None:
            return
        if record.phase is not HoldPhase.HELD:
            await self._release(record)
            return
        if self._find_holder(record) is not None:
            return
        if record.holder is not None:
            expires_at = None if record.keep_s is None else int(self.clock()) + record.keep_s
            record = replace(record, holder=None, expires_at=expires_at)
            await self.store.ipam.put_hold(record)
        is_expired = record.expires_at is not None and record.expires_at <= self.clock()
        if (is_expired and self._has_compared) or record.network_id in self._gone:
            await self._release(record)

    def _find_holder(self, record: HoldRecord) -> EndpointId | None:
        """Return the endpoint that has what a key has; the record does not name it if it is older than the endpoint."""
        if record.holder is not None and self.store.find_endpoint(record.holder) is not None:
            return record.holder
        having = self.store.endpoints_with_address([str(ip_interface(address).ip) for address in record.addresses])
        return next((one.id for one in having if one.network_id == record.network_id), None)

    async def _find(self, request: CreateEndpoint, plan: Plan, key: str, contention: Contention) -> HoldRecord | None:
        """Return what a key has, when no other endpoint has it; None if it has nothing."""
        name = request.network_id, plan.configuration.name, key
        record = next((one for one in self.store.ipam.holds() if _name(one) == name), None)
        if record is None:
            return None
        if record.phase is not HoldPhase.HELD:
            await self._release(record)
            return None
        holder = self._find_holder(record)
        if holder not in {None, request.endpoint_id}:
            refuse_changed_hold(plan, record)
            remedy = f"give each container its own with {endpoint_option(STICKY, 'KEY')}"
            await contention.wait_for_holder(holder, f"key {key}", remedy)
        refuse_changed_hold(plan, record)
        return record

    async def _reserve(
        self, request: CreateEndpoint, plan: Plan, key: str, before: HoldRecord | None, contention: Contention
    ) -> HoldRecord:
        """Have the IPAM plugin reserve addresses; those that the key has already, if its section has changed."""
        addresses = () if before is None else before.addresses
        if before is not None:
            await self._release(before)
        record = HoldRecord(
            id=HoldId(token_hex(32)),
            network_id=request.network_id,
            section=plan.configuration.name,
            key=key,
            phase=HoldPhase.PENDING,
            addresses=(),
            mac=None if before is None else before.mac,
            reservation=plan_hold(plan, str(self.plugins.netns), addresses),
            keep_s=plan.options.sticky_for,
            holder=request.endpoint_id,
            expires_at=None,
            created_at=int(self.clock()),
        )
        while True:
            contention.note_leaving()
            await self.store.ipam.put_hold(record)
            try:
                result = await self.plugins.add(record, record.reservation)
            except PluginFailed as exc:
                await self._release(record)
                await contention.wait_or_raise(exc)
            except BaseException:
                self._wanted.set()
                raise
            else:
                break
        held = replace(
            record,
            phase=HoldPhase.HELD,
            addresses=tuple(str(ip.address) for ip in result.ips),
            mac=record.mac or hold_mac(plan, result),
            reservation=replace(record.reservation, result=result.document),
        )
        log.info("hold.reserved", key=key, configuration=record.section, addresses=held.addresses)
        return held

    async def _release(self, record: HoldRecord) -> None:
        if record.phase is not HoldPhase.RELEASING:
            record = replace(record, phase=HoldPhase.RELEASING, holder=None, expires_at=None)
            await self.store.ipam.put_hold(record)
        await self.plugins.delete(record, record.reservation)
        await self.store.ipam.remove_hold(record.id)
        await self.plugins.tidy(lambda: self.store.ipam.is_empty)
        log.info("hold.released", key=record.key, configuration=record.section, addresses=record.addresses)


def _name(record: HoldRecord) -> _Name:
    return record.network_id, record.section, record.key
