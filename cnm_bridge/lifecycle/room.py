# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Makes room for a new endpoint where one that is dead, or being torn down, has what it needs.

DeleteEndpoint is answered before its plugins have run (docs/decisions, 13). Most that comes next does not notice, for
plugins are made for ADD and DEL of several containers at the same time. Who is to have a certain address or port waits
for the endpoint that has it; who is refused something waits for all that are leaving.

A dockerd that was killed starts again, forgets its former endpoints without telling us, and starts containers anew, all
within a second. Reconcile comes later. Until then the dead have what the new endpoints want: their ports, static
addresses, or the last addresses of a small subnet. Nothing of that is looked at before something was refused.
"""

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import structlog

from cnm_bridge.kernel import IpAddress, Kernel, KernelError
from cnm_bridge.lifecycle.owed import OwedTearDowns
from cnm_bridge.lifecycle.usage import Usage
from cnm_bridge.lifecycle.verification import find_abandoned, find_dead
from spec import find_str
from state import EndpointId, EndpointRecord, Store

__all__ = ["MakeRoom"]

log = structlog.get_logger()

_DEAD: Final = "its container does not run, and a new endpoint needs what it has"

_PATIENCE_S: Final = 5.0
"""How long an error is kept back that may come of what Docker has deleted and is being torn down."""


class MakeRoom:
    """Waits for tear downs that Docker was not kept waiting for, and begins those that nobody has asked for.

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

    @property
    def leaving(self) -> frozenset[EndpointId]:
        """The endpoints that are being torn down, also those that have failed before and are torn down again now."""
        return self._owed.leaving

    async def wait_for_addresses(self, addresses: Collection[IpAddress]) -> None:
        """Wait until the endpoints have left that are leaving and have one of some addresses.

        `firewall` finds its rules by address: the DEL of such an endpoint would take those of a new one away. No plugin
        runs longer than it may, so this ends.
        """
        if addresses:
            await self.wait_for(record.id for record in self._store.endpoints_with_address(map(str, addresses)))

    async def wait_for(self, endpoints: Iterable[EndpointId]) -> None:
        """Wait until some endpoints have left, if they are leaving, or their tear down has failed."""
        await self._owed.wait_left(endpoints)

    async def on_network(self, name: str, leaving: Iterable[EndpointId]) -> bool:
        """Make room on a CNI network where something was refused; return whether there is more of it now.

        Args:
            name: The CNI network; its dead endpoints are torn down.
            leaving: What was leaving, this network or another, before that was asked for: it may have had it.
        """
        have_left = await self._have_left(leaving)
        here = (
            record for record in self._store.endpoints() if find_str(record.attachment.configuration, "name") == name
        )
        return await self.of(here) or have_left

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
        return self._is_any_gone(dead)

    async def _have_left(self, leaving: Iterable[EndpointId]) -> bool:
        """Wait for some endpoints, but not for long; tell whether any has left."""
        wanted = frozenset(leaving)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.wait_for(wanted)
        return self._is_any_gone(wanted)

    def _is_any_gone(self, endpoints: Iterable[EndpointId]) -> bool:
        return any(self._store.find_endpoint(endpoint_id) is None for endpoint_id in endpoints)
