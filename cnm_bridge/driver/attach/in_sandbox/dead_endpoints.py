# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds endpoints of the modes *hybrid* and *direct* that are dead, abandoned, or without their link.

Dead: Docker has removed its sandbox. Abandoned: no process is in its sandbox. The pin does not count: it keeps the
namespace until DEL.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_state import EndpointRecord, Phase
from cnm_bridge.core.model.naming import alternative_name
from cnm_bridge.system.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLiveness:
    """Finds endpoints that no container can use any more.

    Attributes:
        kernel: Knows sandboxes, links and processes.
    """

    kernel: Kernel

    async def find_dead(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that have been joined and whose sandbox does not exist any more.

        An endpoint that has only a reservation is not returned: only Docker knows whether it will join it.
        """
        joined = _joined(endpoints)
        gone = await self.kernel.gone_sandboxes(
            {record.sandbox_key for record in joined if record.sandbox_key is not None}
        )
        return tuple(record for record in joined if record.sandbox_key in gone)

    async def find_abandoned(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints without a process in their sandbox, and unjoined ones whose caller has ended.

        See `find_abandoned` of `cnm_bridge.driver.attach.move.dead_endpoints`.

        Raises:
            KernelError: Processes cannot be read.
        """
        attached = [record for record in endpoints if record.phase.is_attached]
        callers = {record.caller for record in attached if record.caller}
        ended = {caller for caller in callers if self.kernel.find_start(caller.pid) != caller.started}
        suspects = [record for record in attached if record.phase is Phase.JOINED or record.caller in ended]
        if not suspects:
            return ()
        processes = await self.kernel.find_process_namespaces()

        def is_abandoned(record: EndpointRecord) -> bool:
            return alternative_name(record.attachment.id) not in processes.altnames and not (
                record.sandbox_key and processes.includes(Path(record.sandbox_key))
            )

        return await asyncio.to_thread(lambda: tuple(filter(is_abandoned, suspects)))

    async def find_without_link(self, endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the joined endpoints whose sandbox exists and does not have their link.

        Raises:
            KernelError: A namespace cannot be read.
        """
        joined = {alternative_name(record.attachment.id): record for record in _joined(endpoints)}
        away = await self.kernel.find_without_link(
            {name: one.sandbox_key for name, one in joined.items() if one.sandbox_key}
        )
        return tuple(record for name, record in joined.items() if name in away)


def _joined(endpoints: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
    return tuple(record for record in endpoints if record.phase is Phase.JOINED)
