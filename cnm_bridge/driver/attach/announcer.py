# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Announces the addresses of joined endpoints to other hosts on the same network, in the background.

A container that comes back with its address may have another MAC, or be on another host. Neighbours keep the old MAC
until their entry expires, 20 to 45 seconds in measurements, unless the address is announced. libnetwork announces only
the addresses of links that it moves, from Engine 28 on, and in a form that changes no neighbour's entry (seen with
28.5: ARP for 0.0.0.0).
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from cni_bridge_state import EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.options.docker_options import Announcements, parse_announcements
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedTasks

__all__ = ["Announcer"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces addresses, once libnetwork has placed the link.

    After a restart of the daemon nothing is announced again: the neighbours know the addresses.
    """

    store: Store
    kernel: Kernel
    _tasks: KeyedTasks[EndpointId] = field(default_factory=lambda: KeyedTasks("announcements"), init=False)
    _placed: dict[EndpointId, asyncio.Event] = field(default_factory=dict, init=False)
    """Endpoint whose addresses are to be announced → whether its link may have been placed since the last look."""

    def join(self, endpoint: Endpoint) -> bool:
        """Record that an endpoint has been joined; return whether its addresses are to be announced."""
        network = self.store.find_network(endpoint.record.network_id)
        wanted = parse_announcements({} if network is None else network.options)
        self.forget(endpoint.id)
        if wanted.count:
            placed = self._placed[endpoint.id] = asyncio.Event()
            self._tasks.begin(endpoint.id, partial(self._announce, endpoint.id, wanted, placed))
        return bool(wanted.count)

    def placed(self, endpoint_id: EndpointId) -> None:
        """Start to announce, if that is due: the link is in its sandbox, or may be; does not block."""
        if endpoint_id in self._placed:
            self._placed[endpoint_id].set()

    def forget(self, endpoint_id: EndpointId) -> None:
        """Announce no more for an endpoint; does not block."""
        self._placed.pop(endpoint_id, None)
        self._tasks.cancel(endpoint_id)

    async def run(self) -> None:
        """Announce until cancelled."""
        await self._tasks.run()

    async def _announce(self, endpoint_id: EndpointId, wanted: Announcements, placed: asyncio.Event) -> None:
        """Announce the addresses as often as the network's options say, as soon as the link is there."""
        if self._placed.get(endpoint_id) is not placed:  # it has left before this began
            return
        sent = 0
        while sent < wanted.count:
            if sent:
                await asyncio.sleep(wanted.interval_s)
            else:
                await placed.wait()
                placed.clear()
            record = self.store.find_endpoint(endpoint_id)
            if record is None or record.phase is not Phase.JOINED or record.sandbox_key is None:
                break
            try:
                addresses = await self.kernel.link_in_sandbox(
                    Path(record.sandbox_key), Endpoint(record).altname
                ).announce()
            except KernelError as exc:  # the container reaches others all the same
                log.debug("endpoint.not_announced", endpoint_id=endpoint_id, error=str(exc))
                break
            if addresses is None:
                sent = 0
                continue
            if not sent:
                log.debug("endpoint.announced", endpoint_id=endpoint_id, addresses=sorted(map(str, addresses)))
            sent += 1
        if self._placed.get(endpoint_id) is placed:
            del self._placed[endpoint_id]
