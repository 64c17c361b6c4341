# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Keeps the DHCP leases of running containers across restarts of the CNI DHCP daemon.

The daemon keeps leases in its memory. If it ends, they are not renewed, and the server gives the addresses to others. A
connection to each daemon is held open; when it is closed, the leases are got again from the daemon's successor, for
the same client identifiers.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase, ProcessRecord, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.dhcp import find_daemon_socket
from cnm_bridge.driver.attach.leases import DhcpConnection, Leases
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_RETRY_S: Final = 10.0
"""Pause before a daemon that does not answer, or leases that could not be got, are tried again."""
_SYSTEMD: Final = 1
"""Process ID."""
_AT_ONCE: Final = 2
"""How many leases of a network are got at once, each for half a minute if its server is silent. Other networks, and
starts, have other slots."""


@dataclass(slots=True)
class DhcpState:
    """What is known about one CNI DHCP daemon."""

    error: str | None = None
    """Why it does not answer, None if it does."""
    lost: dict[EndpointId, str] = field(default_factory=dict)
    """The endpoints whose lease it does not keep, with the reason."""


@dataclass(frozen=True, slots=True)
class LeaseKeeper:
    """Watches the daemons of all joined endpoints with DHCP."""

    store: Store
    leases: Leases
    locks: KeyedLocks[EndpointId]
    states: dict[Path, DhcpState] = field(default_factory=dict, init=False)
    """What is known about each daemon, by its socket."""
    _found: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _slots: dict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_AT_ONCE)), init=False
    )

    def __post_init__(self) -> None:
        self.store.when_phase_changed(self._note)

    async def run(self) -> None:
        """Watch until cancelled."""
        watched: set[Path] = set()
        for record in self.store.endpoints():
            self._note(record, is_removed=False)
        async with asyncio.TaskGroup() as tasks:
            while True:
                for socket in self.states.keys() - watched:
                    tasks.create_task(self._watch(socket, self.states[socket]))
                    watched.add(socket)
                self._found.clear()
                await self._found.wait()

    def _note(self, record: EndpointRecord, is_removed: bool) -> None:  # the store's protocol
        socket = _socket_of(record)
        if socket is None:
            return
        if record.phase is Phase.JOINED and not is_removed and socket not in self.states:
            self.states[socket] = DhcpState()
            self._found.set()
        elif record.phase is not Phase.JOINED and socket in self.states:
            self.states[socket].lost.pop(record.id, None)

    async def _watch(self, socket: Path, state: DhcpState) -> None:
        """Get leases again whenever another daemon listens at a socket."""
        has_ended = False
        while True:
            try:
                connection = await self.leases.connect(socket)
            except Refused as exc:
                if state.error is None:
                    log.warning("dhcp.daemon_missing", socket=str(socket), error=str(exc))
                state.error = str(exc)
                await asyncio.sleep(_RETRY_S)
                continue
            state.error = None
            try:
                await self._serve(socket, state, connection, has_ended_before=has_ended)
            finally:
                connection.close()
            has_ended = True
            log.warning("dhcp.daemon_ended", socket=str(socket))

    async def _serve(
        self, socket: Path, state: DhcpState, connection: DhcpConnection, *, has_ended_before: bool
    ) -> None:
        """Get the leases that a daemon does not keep, again and again until it ends; then its successor is asked."""
        process = connection.process
        # With socket activation the socket is systemd's, before and after a restart of the daemon.
        is_unknown = process is None or (has_ended_before and process.pid == _SYSTEMD)
        renewals: dict[EndpointId, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            closed = tasks.create_task(connection.wait_closed())
            while not closed.done():
                renewals = {endpoint_id: renewal for endpoint_id, renewal in renewals.items() if not renewal.done()}
                for record in self.store.endpoints():
                    has_none = is_unknown or record.lease_holder != process or record.id in state.lost
                    if has_none and record.id not in renewals and _is_joined_with(record, socket):
                        renewals[record.id] = tasks.create_task(self._renew(record, state, process))
                is_unknown = False
                await asyncio.wait((closed,), timeout=_RETRY_S)
            for renewal in renewals.values():
                renewal.cancel()

    async def _renew(self, joined: EndpointRecord, state: DhcpState, process: ProcessRecord | None) -> None:
        """Get the lease of an endpoint again, if it is still joined; a failure is logged and kept in `state`."""
        endpoint_id = joined.id
        async with self._slots[joined.attachment.network]:
            record = self.store.find_endpoint(endpoint_id)
            if record is None or record.phase is not Phase.JOINED:
                return
            try:
                # Without the endpoint's lock: Leave must not wait for a silent server. A DEL waits for the ADD here,
                # because both are of one container, and then releases the lease.
                await self.leases.renew(record)
                await self._store_holder(endpoint_id, process)
            except (Refused, CniError, StateError) as exc:
                if state.lost.get(endpoint_id) != str(exc):
                    log.warning("dhcp.lease_lost", endpoint_id=endpoint_id, error=str(exc))
                state.lost[endpoint_id] = str(exc)
            except Exception:  # a bug is logged, and must not keep the others from their leases
                log.exception("dhcp.bug", endpoint_id=endpoint_id)
            else:
                state.lost.pop(endpoint_id, None)
                log.info("dhcp.lease_renewed", endpoint_id=endpoint_id)

    async def _store_holder(self, endpoint_id: EndpointId, process: ProcessRecord | None) -> None:
        async with self.locks.hold(endpoint_id):
            record = self.store.find_endpoint(endpoint_id)
            if record is not None and record.phase is Phase.JOINED:
                await self.store.put_endpoint(replace(record, lease_holder=process))


def _is_joined_with(record: EndpointRecord, socket: Path) -> bool:
    return record.phase is Phase.JOINED and _socket_of(record) == socket


def _socket_of(record: EndpointRecord) -> Path | None:
    """Return the socket of an endpoint's DHCP daemon, None if it has no DHCP."""
    if record.attachment.mode.docker_knows_addresses:  # a lease is obtained at Join
        return None
    return find_daemon_socket(record.attachment.configuration)
