# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Addresses that an earlier run of the engine had, and that it could not release when it started.

An engine releases the addresses of its previous run once, when it boots (moby `libnetwork/endpoint.go`,
releaseAddress). If this daemon did not run then, their records stay. Recovery finds them, see `unclaimed_addresses`,
but only when the engine's API answers, which is after the restart policies have started their containers.
"""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cni_bridge_state import AddressPhase, AddressRecord, AddressUse, ProcessRecord
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class LostAddresses:
    """Finds them among the records of a requested address."""

    kernel: Kernel

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
        if not earlier:
            return ()
        try:
            sandboxes = await self.kernel.look_into_sandboxes()
        except KernelError as exc:
            log.info("reconcile.kernel_unread", error=str(exc))
            return ()
        if sandboxes.unread or sandboxes.inhabited is None:  # one of them may have the address
            return ()
        used = sandboxes.addresses
        lost = [one for one in earlier if one.address is not None and str(one.address.ip) not in used]
        for one in lost:
            log.warning("address.unclaimed", section=one.section, address=str(one.address), pool_id=one.pool)
        return lost
