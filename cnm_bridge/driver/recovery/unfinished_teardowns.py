# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Queues teardowns when the daemon starts, and waits for them.

After a reboot Docker starts its containers as soon as its calls are answered, and they need addresses that are reserved
for the endpoints from before it (docs/decisions/answer-before-del.md).
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_bridge_state import EndpointId, Phase
from cni_bridge_state.store import Store
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.liveness import DEAD, Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins
from cnm_bridge.system.journal import Event, Journal

log = structlog.get_logger()

_UNFINISHED: Final = frozenset({Phase.PENDING, Phase.JOINING, Phase.DELETING})


@dataclass(slots=True, kw_only=True)
class UnfinishedTeardowns:
    """Finds endpoints that the previous run left half created or half deleted, and dead ones; adds their teardowns."""

    store: Store
    teardowns: TeardownQueue
    orphaned_plugins: OrphanedPlugins
    liveness: Liveness
    journal: Journal
    boot_id: str
    limit_s: float
    """How long `wait` waits. After a reboot: how long it waits for each further DEL."""
    boot_limit_s: float
    """How long `wait` waits in all after a reboot."""
    _from_earlier_boot: tuple[EndpointId, ...] = field(default=(), init=False)

    @property
    def wait_s(self) -> float:
        """How long `wait` waits at most."""
        return max(self.limit_s, self.boot_limit_s) if self._from_earlier_boot else self.limit_s

    async def add(self) -> int:
        """Add the teardowns of all such endpoints; return their number. No calls are running at that time."""
        unfinished = await self._add_unfinished()
        dead = await self._add_dead(besides=unfinished)
        return len(unfinished) + len(dead)

    async def wait(self) -> None:
        """Wait until each of these teardowns has been tried once, at most for `wait_s` seconds.

        After a reboot, stop waiting if no DEL ends for `limit_s` seconds: one that hangs must not keep all networks
        down. A DEL that fails counts as progress: the reboot has removed the rules that it looks for, so it may need
        several executions.
        """
        progress = 0

        def note(event: Event) -> None:
            nonlocal progress
            progress += _is_progress(event)

        now = asyncio.get_running_loop().time
        end = now() + self.wait_s
        with self.journal.listening(note):
            while True:
                before = progress
                try:
                    async with asyncio.timeout_at(min(end, now() + self.limit_s)):
                        await self.teardowns.wait_tried()
                        return
                except TimeoutError:
                    if now() >= end or progress == before:
                        log.info("daemon.recovery_continues", endpoints=len(self.teardowns.untried))
                        return

    async def _add_unfinished(self) -> frozenset[EndpointId]:
        """Add the teardowns of endpoints that are half created or half deleted; return which these are.

        An endpoint of an earlier boot has reservations, but neither link nor namespace, and Docker creates a new one
        when it restarts the container. One whose link is in its sandbox is none of these: the boot ID also changes when
        the daemon moves into a container that has one of its own.

        Plugins that a killed daemon left running are killed first. While one cannot be killed, the teardown of its
        endpoint fails and is repeated.
        """
        self._from_earlier_boot = await self._find_from_earlier_boot()
        phases = (record.id for record in self.store.endpoints() if record.phase in _UNFINISHED)
        unfinished = dict.fromkeys((*self._from_earlier_boot, *phases))
        await self.orphaned_plugins.kill()
        for endpoint_id in unfinished:
            self.teardowns.add(endpoint_id)
            await asyncio.sleep(0)  # there may be thousands
        return frozenset(unfinished)

    async def _find_from_earlier_boot(self) -> tuple[EndpointId, ...]:
        records = [record for record in self.store.endpoints() if record.boot_id != self.boot_id]
        try:
            in_place = await self.liveness.find_in_place(records)
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return ()  # they may be in use; rounds find those that are not
        return tuple(record.id for record in records if record.id not in in_place)

    async def _add_dead(self, besides: frozenset[EndpointId]) -> frozenset[EndpointId]:
        """Add the teardowns of endpoints that the kernel has lost; one look is enough, because no calls are running."""
        try:
            dead = await self.liveness.find_dead(
                record for record in self.store.endpoints() if record.id not in besides
            )
        except KernelError as exc:
            log.warning("reconcile.kernel_unread", error=str(exc))
            return frozenset()
        gone = await self.liveness.without_in_use(dead)
        for record in gone:
            log.warning("endpoint.dead", endpoint_id=record.id, reason=DEAD)
            self.teardowns.add(record.id)
            await asyncio.sleep(0)
        return frozenset(record.id for record in gone)


def _is_progress(event: Event) -> bool:
    """Return whether a plugin has ended its DEL by itself, or an endpoint is gone."""
    if event.name == "plugin.executed":
        return event.facts["verb"] == "DEL" and event.facts["outcome"] != PluginTimeout.__name__
    return event.name == "endpoint.phase" and event.facts["phase"] is None
