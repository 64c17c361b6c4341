# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Has IPAM plugins reserve and release what keys have; each step is on disk before it begins.

```
new             store PENDING ─▶ ADD ─▶ store HELD
again           store PENDING with the addresses ─▶ DEL ─▶ store the new section ─▶ ADD with the addresses ─▶ store HELD
released        store RELEASING ─▶ DEL ─▶ remove the record
```

They are reserved again if the section of the list has changed, and if the plugin has lost them. A key keeps its
addresses then, whatever the plugin says about them. If it refuses them, they are reserved as before. What a crash or an
error interrupts is repeated, with the section that is on disk.

An ADD without an answer may have reserved something with a section that the list no longer has. If its DEL fails, too,
the key continues under a new ID, and the old one stays RELEASING until its DEL is done.
"""

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from typing import Final

import structlog

from cni_bridge_spec import find_str, get_objects
from cni_bridge_state import HoldId, HoldPhase, HoldRecord, ReservationRecord, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, ErrorCode, PluginFailed
from cni_invoker.errors import PluginNotFound, PluginNotStarted
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.addresses.address_ranges import RANGED
from cnm_bridge.core.planning.hold import describe_hold, hold_mac, is_current, plan_again, plan_hold, refused_again
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()

_LOST: Final = frozenset({ErrorCode.UNKNOWN_CONTAINER, ErrorCode.INTERNAL})
"""The codes of CHECK if there is no reservation: of cni-ipam-etcd, and of host-local."""

_CHECK_LIMIT_S: Final = 3.0
"""Limit for CHECK: the container waits for it. `host-local` waits for the lock of another one, which may hang."""

_REFUSED: Final = (PluginFailed, PluginNotFound, PluginNotStarted)
"""The errors of an ADD that has reserved nothing: the plugin has refused, or has not run."""


@dataclass(frozen=True, slots=True)
class HoldReservations:
    """Runs the plugins of holds. The caller holds the lock of the key, except to release what the key has no more."""

    store: Store
    plugins: PluginRuns
    _releases: KeyedLocks[HoldId] = field(default_factory=KeyedLocks, init=False)

    async def add(self, record: HoldRecord, plan: Plan | None = None) -> HoldRecord:
        """Have the plugin reserve what a record in PENDING says; return the record in HELD.

        Args:
            record: The record.
            plan: The plan of the key's first container, which chooses the MAC; None if the key has one.

        Raises:
            CniError, KernelError, StateError: It is not reserved, or that is not stored; the record is in PENDING.
        """
        await self.store.ipam.put_hold(record)
        result = await self.plugins.add(record, record.reservation)
        find_holders = partial(self.store.endpoints_with_mac, record.section)
        held = replace(
            record,
            phase=HoldPhase.HELD,
            addresses=tuple(str(ip.address) for ip in result.ips),
            mac=record.mac if plan is None else hold_mac(plan, result, find_holders),
            reservation=replace(record.reservation, result=result.document),
        )
        await self.store.ipam.put_hold(held)
        log.info("hold.reserved", key=held.key, configuration=held.section, addresses=held.addresses)
        return held

    async def is_lost(self, record: HoldRecord) -> bool:
        """Return whether the plugin has lost what a key has, as after a reboot if its data were in /run.

        Only plugins are asked whose CHECK looks for the reservation; one that cannot answer in time has not lost it.

        Raises:
            KernelError: The plugin has not run.
        """
        plugin = find_str(get_objects(record.reservation.configuration, "plugins")[0], "type")
        if plugin not in RANGED:
            return False
        try:
            async with asyncio.timeout(_CHECK_LIMIT_S):
                await self.plugins.check(record, record.reservation)
        except PluginFailed as exc:
            if exc.code not in _LOST:
                return False
            log.warning("hold.lost", key=record.key, configuration=record.section, error=str(exc))
            return True
        except (TimeoutError, CniError):
            return False
        return False

    async def renew(self, record: HoldRecord, plan: Plan) -> HoldRecord:
        """Have the addresses of a key reserved again, with the section that its list has now.

        Raises:
            Refused: The plugin refuses them, or is missing: they are reserved as before, or will be. Or a DEL with this
                section is pending: nothing has been changed.
            CniError, KernelError, StateError: They are not reserved; that is repeated by `restore`.
        """
        reservation = plan_hold(plan, str(self.plugins.netns), record.addresses)
        if self._is_set_aside(record, reservation):  # each further attempt would leave a further DEL
            raise Refused(
                f"{describe_hold(record)}, and the IPAM plugin of CNI configuration {record.section} has not released "
                "what it may have reserved in an earlier attempt; try again when `cni-bridge ls --sticky` no longer "
                "shows phase releasing; nothing has been changed"
            )
        pending = replace(record, phase=HoldPhase.PENDING)
        await self.store.ipam.put_hold(pending)
        changed = replace(pending, reservation=reservation)
        try:
            await self.plugins.delete(pending, pending.reservation)
        except CniError as exc:
            if not is_current(plan, pending) and pending.reservation.result is None:
                changed = await self._set_aside(pending, reservation, exc)
            elif pending.reservation.result is not None or not isinstance(exc, _REFUSED):
                raise
        try:
            return await self.add(changed)
        except _REFUSED as exc:
            consequence = "they are reserved as before"
            try:
                await self.add(await self._undo(changed, plan_again(record)))
            except (CniError, KernelError, StateError) as failure:
                consequence = f"reserving them as before has failed, too, and is repeated ({failure})"
            raise refused_again(record, exc, consequence) from exc

    async def restore(self, record: HoldRecord) -> None:
        """Have the addresses of a key reserved again, after `renew` was interrupted.

        Raises:
            CniError, KernelError, StateError: They are not reserved; that is to be repeated.
        """
        await self.plugins.delete(record, record.reservation)
        await self.add(replace(record, reservation=plan_again(record)))

    def _is_set_aside(self, record: HoldRecord, reservation: ReservationRecord) -> bool:
        """Return whether a DEL of a key with a section is pending."""
        return any(
            one.phase is HoldPhase.RELEASING
            and (one.network_id, one.key) == (record.network_id, record.key)
            and one.reservation.configuration == reservation.configuration
            for one in self.store.ipam.holds()
        )

    async def _undo(self, record: HoldRecord, reservation: ReservationRecord) -> HoldRecord:
        """Run DEL after a refused ADD; return the key's record with what is to be reserved instead."""
        try:
            await self.plugins.delete(record, record.reservation)
        except _REFUSED:
            pass  # as ADD: the section may be unusable
        except CniError as exc:
            return await self._set_aside(record, reservation, exc)
        return replace(record, reservation=reservation)

    async def _set_aside(self, record: HoldRecord, reservation: ReservationRecord, why: CniError) -> HoldRecord:
        """Store that DEL is to be repeated until it is done; return the key's record with what is to be reserved now.

        Args:
            record: The record in PENDING whose DEL has failed.
            reservation: What is to be reserved instead, under a new ID.
            why: The error of DEL.
        """
        left = replace(record, phase=HoldPhase.RELEASING, holder=None, change=None, expires_at=None)
        key = replace(record, id=HoldId(token_hex(32)), reservation=reservation)
        await self.store.ipam.split_hold(left, key)
        log.warning("hold.release_pending", hold_id=left.id, key=left.key, configuration=left.section, error=str(why))
        return key

    async def release(self, record: HoldRecord) -> None:
        """Release what a key has, or was to get; does nothing if it has been released.

        Raises:
            CniError, KernelError, StateError: It is not released; that may be repeated.
        """
        async with self._releases.hold(record.id):
            if self.store.ipam.find_hold(record.id) is None:
                return
            if record.addresses and record.phase is not HoldPhase.RELEASING:
                record = replace(record, phase=HoldPhase.RELEASING, holder=None, change=None, expires_at=None)
                await self.store.ipam.put_hold(record)
            await self.plugins.delete(record, record.reservation)
            await self.store.ipam.remove_hold(record.id)
        await self.plugins.tidy(lambda: self.store.ipam.is_empty)
        log.info("hold.released", key=record.key, configuration=record.section, addresses=record.addresses)
