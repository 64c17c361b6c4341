# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes room for a new endpoint where a dead one has what it needs.

A dockerd that was killed starts again, forgets its former endpoints without telling us, and starts containers anew, all
within a second. Reconcile comes later. Until then the dead have what the new endpoints want: their ports, static
addresses, or the last addresses of a small subnet. Nothing is looked at before something was refused.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.lifecycle.owed import OwedTearDowns
from cnm_bridge.lifecycle.usage import Usage
from cnm_bridge.lifecycle.verification import find_abandoned, find_dead
from spec import find_str
from state import EndpointRecord, Store

__all__ = ["MakeRoom"]

log = structlog.get_logger()

_DEAD: Final = "its container does not run, and a new endpoint needs what it has"


class MakeRoom:
    """Tears down at once those endpoints that no container uses, or is about to use.

    Args:
        store: The records.
        kernel: The links and sandboxes.
        usage: Tells what is in use, wherever its sandbox is.
        owed: Tears endpoints down.
    """

    def __init__(self, store: Store, kernel: Kernel, usage: Usage, owed: OwedTearDowns) -> None:
        self._store = store
        self._kernel = kernel
        self._usage = usage
        self._owed = owed

    async def on_network(self, name: str) -> bool:
        """Tear down the dead endpoints of a CNI network; return whether there are fewer of them now."""
        return await self.of(
            record for record in self._store.endpoints() if find_str(record.attachment.configuration, "name") == name
        )

    async def of(self, endpoints: Iterable[EndpointRecord]) -> bool:
        """Tear down those of some endpoints that are dead; return whether there are fewer of them now.

        What fails goes on in the background.
        """
        wanted = tuple(endpoints)
        try:
            gone = await self._usage.spare(await find_dead(self._kernel, wanted))
            abandoned = await find_abandoned(self._kernel, wanted)
        except KernelError as exc:  # then whoever needs the room says what is missing
            log.warning("endpoint.room_unknown", error=str(exc))
            return False
        dead = {record.id: record for record in (*gone, *abandoned)}
        for record in dead.values():
            log.warning("endpoint.dead", endpoint_id=record.id, reason=_DEAD)
            await self._owed.give_up(record)
        await self._owed.wait_tried(dead)
        return any(self._store.find_endpoint(endpoint_id) is None for endpoint_id in dead)
