# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs rounds of comparison and repair: whenever the engine comes up, periodically, and on request."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from cni_bridge_state import StateError
from cnm_bridge.driver.ipam.lost_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.repair import Repair
from cnm_bridge.driver.recovery.trusted_engine import TrustedEngine

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Runs the rounds.

    Attributes:
        interval_s: The pause between two rounds, in seconds.
        rounds: How many rounds in which the engine answered have completed since the daemon started.
        last_round: When the last of these ended, in seconds since 1970; None if there was none.
    """

    engine: TrustedEngine
    repair: Repair
    unclaimed_addresses: UnclaimedAddresses
    ways_out: WaysOut
    interval_s: float
    rounds: int = field(default=0, init=False)
    last_round: float | None = field(default=None, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _begun: int = field(default=0, init=False)
    _ended: int = field(default=0, init=False)
    _round_ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def engine_is_up(self) -> bool:
        """Whether the daemon is connected to the engine's event stream."""
        return self.engine.is_up

    @property
    def engine_was_asked(self) -> bool:
        """Whether it is known, since the daemon's start, if the engine answers."""
        return self.engine.version.was_asked

    async def run(self) -> None:
        """Run rounds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.follow(self._wanted.set, self.ways_out.note_connected))
            tasks.create_task(self.ways_out.look_when_connected())
            tasks.create_task(self.engine.version.give_up())
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.interval_s):
                        await self._wanted.wait()
                self._wanted.clear()
                self._begun += 1
                try:
                    await self.once()
                except StateError as exc:
                    log.warning("reconcile.given_up", error=str(exc))
                except Exception:  # a bug in background work is logged, and must not end the daemon
                    log.exception("reconcile.bug")
                self._ended = self._begun
                self._round_ended.set()
                self._round_ended = asyncio.Event()

    async def wait_round(self) -> None:
        """Begin a round now, and wait for its end. If one is running, another follows it."""
        wanted = self._begun + 1
        self._wanted.set()
        while self._ended < wanted:
            await self._round_ended.wait()

    async def once(self) -> None:
        """Run one round."""
        if await self.repair() is not None:
            self.rounds += 1
            self.last_round = time.time()
            await self.unclaimed_addresses.compare()
            await self.ways_out.look()
