# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Holds the addresses of keys (`cni.sticky`) from the first container with a key on, until they are released.

```
first container     reserve the addresses ─▶ attach with static
it is attached      store its MAC, and how long the key keeps what it has
its endpoint goes   store HELD, without an endpoint, and until when
next container      store HELD, with its endpoint ─▶ attach with static
released            release the addresses
```

What the IPAM plugin does is in `hold_reservations.py`, and what is due afterwards in `hold_settlements.py`. A container
that is not attached changes nothing: a new key has nothing afterwards, and any other one what it had.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

import structlog

from cni_bridge_state import EndpointId, HoldId, HoldPhase, HoldRecord, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed
from cnm_bridge.core.errors import Refused, endpoint_option
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.hold import (
    change_of,
    confirmed,
    describe_hold,
    is_current,
    is_renewed,
    plan_hold,
    refuse_changed_hold,
    release_it,
    with_hold,
    without_holder,
)
from cnm_bridge.core.planning.options.cni_options import STICKY
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint, EndpointReference
from cnm_bridge.driver.ipam.hold_reservations import HoldReservations
from cnm_bridge.driver.ipam.hold_settlements import HoldName, HoldSettlements, name_of
from cnm_bridge.driver.teardown.contention import Contention
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.queue import UNDO_LIMIT_S

log = structlog.get_logger()

_OWN_KEY: Final = f"give each container its own with {endpoint_option(STICKY, 'KEY')}"


@dataclass(slots=True, kw_only=True)
class Holds:
    """Hands out and releases what keys have."""

    store: Store
    reservations: HoldReservations
    dead: DeadEndpoints
    settlements: HoldSettlements

    @asynccontextmanager
    async def holding(self, request: CreateEndpoint, plan: Plan, deadline: float) -> AsyncIterator[Plan]:
        """Yield the plan of an endpoint with what its key has, for the creation of the endpoint.

        A plan without a key is yielded as it is.

        Args:
            request: The call.
            plan: The plan without what the key has.
            deadline: When all waits end, in event loop time.

        Raises:
            Refused: Another endpoint has the key, or what the key has does not suit the plan.
            CniError: The IPAM plugin has no address, or failed.
            KernelError, StateError: As `HoldReservations.add`.
        """
        key = plan.options.sticky
        if key is None:
            yield plan
            return
        name = request.network_id, plan.configuration.name, key
        try:
            async with AsyncExitStack() as held:
                await self._lock(held, name, deadline)
                endpoint = EndpointReference(network_id=request.network_id, endpoint_id=request.endpoint_id)
                contention = Contention(self.dead, name[1], deadline, endpoint, plan.fixed_addresses)
                before = await self._find(request, plan, name, contention)
                if before is None:
                    record = await self._reserve(request, plan, key, contention)
                else:
                    record = replace(before, holder=request.endpoint_id, change=change_of(plan))
                    await self.store.ipam.put_hold(record)
                try:
                    yield with_hold(plan, record)
                except BaseException:
                    self.settlements.note_not_created(request.endpoint_id)
                    raise
        finally:
            self.settlements.request()

    async def note_joined(self, endpoint_id: EndpointId) -> None:
        """Store what the container of an endpoint changes about what its key has, because it is attached."""
        record = self.store.ipam.find_hold_of(endpoint_id)
        if record is not None and record.change is not None:
            try:
                await self.store.ipam.put_hold(confirmed(record, record.change))
            except StateError as exc:
                self.settlements.note_attached(endpoint_id)
                log.warning("hold.not_stored", hold_id=record.id, error=str(exc))

    async def release(self, record: HoldRecord) -> None:
        """Release what a key has.

        Raises:
            Refused: A container has it; nothing has been changed.
            CniError, KernelError, StateError: It could not be released, and will be tried again.
        """
        async with self.settlements.locks.hold(name_of(record)):
            stored = self.store.ipam.find_hold(record.id)
            if stored is None:
                return
            if self.settlements.find_holder(stored) is not None:
                raise Refused(
                    f"key {stored.key} is in use: `cni-bridge ls --sticky` shows its container; remove that first; "
                    "nothing has been changed"
                )
            await self.reservations.release(stored)

    async def _lock(self, held: AsyncExitStack, name: HoldName, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await held.enter_async_context(self.settlements.locks.hold(name))
        except TimeoutError as exc:
            raise Refused(
                f"key {name[2]} is not free yet: another container with it is being created, or what it had is being "
                f"released, see `cni-bridge ls --sticky`; try again, or {_OWN_KEY}"
            ) from exc

    async def _find(
        self, request: CreateEndpoint, plan: Plan, name: HoldName, contention: Contention
    ) -> HoldRecord | None:
        """Return what a key has, as the section of the list is now, when no other endpoint has it; None for nothing."""
        record = self._look_up(name)
        holder = None if record is None else self.settlements.find_holder(record)
        if record is not None and holder not in {None, request.endpoint_id}:
            refuse_changed_hold(plan, record)
            what, remedy = f"key {record.key}", _OWN_KEY
            if holder != record.holder:  # the state is older than the endpoint, or the plugin had lost the address
                what, remedy = f"address that key {record.key} has", f"remove that first, or {release_it(record)}"
            await contention.wait_for_holder(holder, what, remedy)
            record = self._look_up(name)  # it may have been stored meanwhile
        if record is None:
            return None
        if record.phase is not HoldPhase.HELD and not is_renewed(record):
            await self._release_in_time(record, contention)
            return None
        refuse_changed_hold(plan, record)
        try:
            async with asyncio.timeout_at(contention.deadline):
                await asyncio.sleep(0)  # if the time is over, nothing begins
                is_held = record.phase is HoldPhase.HELD and is_current(plan, record)
                if is_held and not await self.reservations.is_lost(record):
                    return record
                return await self.reservations.renew(without_holder(record, self.settlements.clock()), plan)
        except TimeoutError as exc:
            plugin = f"the IPAM plugin of CNI configuration {record.section}"
            problem = (
                f"the time was over before {plugin} could check or renew that reservation; nothing has been changed; "
                "try again"
            )
            if is_renewed(self._look_up(name) or record):
                problem = (
                    f"{plugin} takes long to reserve them again; cni-bridge repeats that; try again when `cni-bridge "
                    "ls --sticky` shows phase held"
                )
            raise Refused(f"{describe_hold(record)}, and {problem}") from exc

    def _look_up(self, name: HoldName) -> HoldRecord | None:
        """Return the record of a key; one that is being released only if there is no other one."""
        found = (one for one in self.store.ipam.holds() if name_of(one) == name)
        return min(found, key=lambda one: one.phase is HoldPhase.RELEASING, default=None)

    async def _release_in_time(self, record: HoldRecord, contention: Contention) -> None:
        """Release what an earlier call or the operator has given up.

        Raises:
            Refused: It is not released in time.
        """
        try:
            async with asyncio.timeout_at(contention.deadline):
                await self.reservations.release(record)
        except (TimeoutError, CniError) as exc:
            why = str(exc) or "its DEL has not ended"
            raise Refused(
                f"key {record.key} is not free yet: the IPAM plugin of CNI configuration {record.section} has not "
                f"released what it had: {why}; try again when `cni-bridge ls --sticky` no longer shows it, or "
                f"{_OWN_KEY}"
            ) from exc

    async def _reserve(self, request: CreateEndpoint, plan: Plan, key: str, contention: Contention) -> HoldRecord:
        """Have the IPAM plugin reserve addresses for a new key."""
        record = HoldRecord(
            id=HoldId(token_hex(32)),
            network_id=request.network_id,
            section=plan.configuration.name,
            key=key,
            phase=HoldPhase.PENDING,
            addresses=(),
            mac=None,
            reservation=plan_hold(plan, str(self.reservations.plugins.netns)),
            keep_s=0,
            holder=request.endpoint_id,
            change=change_of(plan),
            expires_at=None,
            created_at=int(self.settlements.clock()),
        )
        while True:
            contention.note_attempt()
            try:
                return await self.reservations.add(record, plan)
            except (PluginFailed, StateError) as exc:
                if not await self._undo(record) or isinstance(exc, StateError):
                    raise
                await contention.wait_or_raise(exc)

    async def _undo(self, record: HoldRecord) -> bool:
        """Undo an ADD; return whether that is done in a short time. Otherwise `settle` repeats it."""
        try:
            async with asyncio.timeout(UNDO_LIMIT_S):
                await self.reservations.release(record)
        except (TimeoutError, CniError, KernelError, StateError) as exc:
            reason = str(exc) or f"its DEL takes more than {UNDO_LIMIT_S:g} s"
            log.warning("hold.release_pending", hold_id=record.id, key=record.key, error=reason)
            return False
        return True
