# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the first process of each container with published ports, so that one look tells whether it has ended.

The search is in the background: it may look at each process of the host, and before Engine 28 the sandbox of a starting
container does not exist yet when its ports are published.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from cni_bridge_spec import get_list
from cni_bridge_state import EndpointId, EndpointRecord, NotJoined, Phase, ProcessRecord, StateError
from cni_bridge_state.store import Store
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.ports import ANY_PORT, CAPABILITY
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwners
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()

_AT_ONCE: Final = 1
"""A search may look at all processes of the host; Docker's calls must not wait behind many of them."""


@dataclass(frozen=True, slots=True)
class FirstProcesses:
    """Finds first processes and stores them in the records of joined endpoints."""

    store: Store
    kernel: Kernel
    owners: SandboxOwners
    locks: KeyedLocks[EndpointId]
    _wanted: asyncio.Queue[EndpointId] = field(default_factory=asyncio.Queue, init=False)
    _searches: dict[EndpointId, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _searching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)

    async def has_ended(self, record: EndpointRecord) -> bool:
        """Return whether the container of an endpoint has certainly ended: its first process is known, and has ended.

        Another container that shares the sandbox may still run. It loses the link when Docker removes the sandbox.

        The first process of a container that ended within some milliseconds is never found. Then all processes of the
        host are looked at: the container has ended if none is in its sandbox.
        """
        process = record.first_process
        try:
            if process is not None:
                return self.kernel.find_start(process.pid) != process.started
            return not await self.kernel.is_inhabited(record.sandbox)
        except (KernelError, NotJoined):  # it cannot be read, or is not known
            return False

    def find(self, endpoint_id: EndpointId) -> None:
        """Request the search for the first process of an endpoint's container; does not block."""
        self._wanted.put_nowait(endpoint_id)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Stop the search for an endpoint that leaves its sandbox, or is gone."""
        search = self._searches.pop(endpoint_id, None)
        if search is not None:
            search.cancel()

    async def run(self) -> None:
        """Search until cancelled; first for the endpoints with ports that the previous run left without one."""
        for record in self.store.endpoints():
            if _has_ports(record) and _lacks_process(record):
                self.find(record.id)
        async with asyncio.TaskGroup() as tasks:
            while True:
                endpoint_id = await self._wanted.get()
                self.forget(endpoint_id)
                self._searches[endpoint_id] = tasks.create_task(self._search(endpoint_id))

    async def _search(self, endpoint_id: EndpointId) -> None:
        try:
            await self._find(endpoint_id)
        except (KernelError, StateError) as exc:
            log.info("endpoint.process_unknown", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug in background work is logged, and must not end the other searches
            log.exception("process.bug", endpoint_id=endpoint_id)
        finally:
            if self._searches.get(endpoint_id) is asyncio.current_task():
                del self._searches[endpoint_id]

    async def _find(self, endpoint_id: EndpointId) -> None:
        record = self.store.find_endpoint(endpoint_id)
        if record is None or not _lacks_process(record):
            return
        endpoint = Endpoint(record)
        if endpoint.sandbox is None:
            return
        if not self.kernel.is_namespace(endpoint.sandbox):
            await self.kernel.wait_departed(endpoint.host_link)
        async with self._searching:
            found = (await self.owners.find(endpoint.sandbox)).process
        if found is None:
            return
        async with self.locks.hold(endpoint_id):
            current = self.store.find_endpoint(endpoint_id)
            if current is not None and _lacks_process(current) and current.sandbox_key == record.sandbox_key:
                process = ProcessRecord(pid=found.pid, started=found.started)
                await self.store.put_endpoint(replace(current, first_process=process))


def _has_ports(record: EndpointRecord) -> bool:
    args = record.attachment.capability_args
    return args != ANY_PORT and bool(get_list(args, CAPABILITY))


def _lacks_process(record: EndpointRecord) -> bool:
    return record.phase is Phase.JOINED and record.first_process is None
