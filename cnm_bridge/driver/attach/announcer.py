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
from typing import Final

import structlog

from cni_bridge_state import EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.options.docker_options import Announcements, parse_announcements
from cnm_bridge.system.kernel import Kernel

__all__ = ["Announcer"]

log = structlog.get_logger()

_NONE: Final = Announcements(count=0, interval_s=0.0)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces addresses, once libnetwork has placed the link.

    After a restart of the daemon nothing is announced again: the neighbours know the addresses.
    """

    store: Store
    kernel: Kernel
    _due: dict[EndpointId, Announcements] = field(default_factory=dict, init=False)
    _running: dict[EndpointId, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _placed: asyncio.Queue[EndpointId] = field(default_factory=asyncio.Queue, init=False)
    _placed_again: set[EndpointId] = field(default_factory=set, init=False)

    def join(self, endpoint: Endpoint) -> bool:
        """Record that an endpoint has been joined; return whether its addresses are to be announced."""
        network = self.store.find_network(endpoint.record.network_id)
        wanted = parse_announcements({} if network is None else network.options)
        self.forget(endpoint.id)
        if wanted.count:
            self._due[endpoint.id] = wanted
        return bool(wanted.count)

    def placed(self, endpoint_id: EndpointId) -> None:
        """Start to announce, if that is due: the link is in its sandbox, or may be; does not block."""
        if endpoint_id in self._running:  # it may have looked for the link too early
            self._placed_again.add(endpoint_id)
        elif endpoint_id in self._due:
            self._placed.put_nowait(endpoint_id)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Announce no more for an endpoint; does not block."""
        self._due.pop(endpoint_id, None)
        self._placed_again.discard(endpoint_id)
        running = self._running.pop(endpoint_id, None)
        if running is not None:
            running.cancel()

    async def run(self) -> None:
        """Announce until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                endpoint_id = await self._placed.get()
                if endpoint_id in self._due and endpoint_id not in self._running:
                    task = tasks.create_task(self._announce(endpoint_id))
                    self._running[endpoint_id] = task
                    task.add_done_callback(partial(self._end, endpoint_id))

    def _end(self, endpoint_id: EndpointId, task: asyncio.Task[None]) -> None:
        if self._running.get(endpoint_id) is task:
            del self._running[endpoint_id]
            if endpoint_id in self._placed_again:
                self._placed_again.remove(endpoint_id)
                self.placed(endpoint_id)

    async def _announce(self, endpoint_id: EndpointId) -> None:
        """Announce the addresses as often as the network's options say; a link that is not there yet stays due."""
        wanted = self._due.get(endpoint_id, _NONE)
        for sent in range(wanted.count):
            if sent:
                await asyncio.sleep(wanted.interval_s)
            record = self.store.find_endpoint(endpoint_id)
            if record is None or record.phase is not Phase.JOINED or record.sandbox_key is None:
                break
            try:
                addresses = await self.kernel.announce(Path(record.sandbox_key), Endpoint(record).altname)
            except KernelError as exc:  # the container reaches others all the same
                log.debug("endpoint.not_announced", endpoint_id=endpoint_id, error=str(exc))
                break
            except Exception:  # a bug must be logged; it must not end the announcements of other endpoints
                log.exception("announcement.bug", endpoint_id=endpoint_id)
                break
            if addresses is None:
                return
            if not sent:
                log.debug("endpoint.announced", endpoint_id=endpoint_id, addresses=sorted(map(str, addresses)))
        self._due.pop(endpoint_id, None)
