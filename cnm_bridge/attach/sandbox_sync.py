# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Syncs the sandbox: adds what the plugins made and Join cannot express, after libnetwork has done its part.

When libnetwork is done depends on the engine. From 28 on, and for `docker network connect` everywhere, the sandbox
exists at Join, and the engine calls EndpointOperInfo (and ProgramExternalConnectivity) once the link is placed. Before
28 the sandbox of a starting container is made later, and no call follows: then netlink is watched until the link leaves
the host namespace, and the sandbox until libnetwork is done there, which takes milliseconds.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import structlog

from cnm_bridge.kernel import WATCHES_AT_ONCE, Kernel, KernelError, SandboxPlan, Snapshot
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.planning.sandbox_plan import describe_placement, plan_sandbox
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from state import EndpointId, EndpointRecord, Phase, Store

__all__ = ["SandboxSync"]

log = structlog.get_logger()

_AT_ONCE: Final = WATCHES_AT_ONCE // 2
"""How many endpoints of the previous run are synced at once: a container that starts now has the other places."""

_PLACEMENT_LIMIT_S: Final = 10.0
"""How long libnetwork may take from moving the link to its last route; then what exists is synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A joined endpoint, with what all of these have."""

    endpoint: Endpoint
    snapshot: Snapshot
    sandbox: Path

    @classmethod
    def of(cls, endpoint: Endpoint) -> Self | None:
        """Return it for an endpoint, None for one that is not joined."""
        if endpoint.record.phase is not Phase.JOINED or endpoint.sandbox is None or endpoint.snapshot is None:
            return None
        return cls(endpoint=endpoint, snapshot=endpoint.snapshot, sandbox=endpoint.sandbox)

    @property
    def id(self) -> EndpointId:
        """Docker's endpoint ID."""
        return self.endpoint.id

    @property
    def internal(self) -> bool:
        """Whether its network is internal."""
        return self.endpoint.record.internal

    @property
    def sandbox_plan(self) -> SandboxPlan:
        """What its sandbox needs."""
        return plan_sandbox(self.snapshot, internal=self.internal)


class SandboxSync:
    """Syncs the sandboxes of endpoints.

    Args:
        store: The records.
        kernel: Changes sandboxes.
        locks: The locks of endpoints.
    """

    def __init__(self, store: Store, kernel: Kernel, locks: KeyedLocks[EndpointId]) -> None:
        self._store = store
        self._kernel = kernel
        self._locks = locks
        self._sandboxes: KeyedLocks[Path] = KeyedLocks()
        self._watches: dict[EndpointId, asyncio.Task[None]] = {}
        self._needy: set[EndpointId] = set()
        self._gateways: set[EndpointId] = set()
        self._wanted: asyncio.Queue[EndpointId] = asyncio.Queue()

    def join(self, endpoint: Endpoint) -> None:
        """Have a sandbox synced as soon as the link of an endpoint that is being joined is placed; returns at once.

        Nothing is watched where nothing is missing, or where the sandbox exists and the engine will call.
        """
        joined = _Joined.of(endpoint)
        if joined is not None and not joined.sandbox_plan.is_empty:
            self._needy.add(joined.id)
            if not self._kernel.is_namespace(joined.sandbox):
                self._wanted.put_nowait(joined.id)

    def become_gateway(self, endpoint_id: EndpointId) -> None:
        """Take note that libnetwork makes the endpoint's default routes; returns at once."""
        if endpoint_id in self._needy:
            self._gateways.add(endpoint_id)

    def stop_being_gateway(self, endpoint_id: EndpointId) -> None:
        """Take note that libnetwork makes the default routes of another endpoint; returns at once.

        So it is when a container starts on several networks: each that is joined may take the place of the one before.
        """
        self._gateways.discard(endpoint_id)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Stop syncing the sandbox of an endpoint; returns at once."""
        self._needy.discard(endpoint_id)
        self._gateways.discard(endpoint_id)
        watch = self._watches.pop(endpoint_id, None)
        if watch is not None:
            watch.cancel()

    async def sync(self, endpoint_id: EndpointId) -> None:
        """Sync the sandbox of an endpoint now, if it is joined, needs something, and its link is in the sandbox.

        Raises:
            SandboxNotSynced: The kernel refused a part.
            KernelError: The sandbox cannot be read.
        """
        if endpoint_id in self._needy:
            async with self._locks.hold(endpoint_id):
                joined = self._find_joined(endpoint_id)
                if joined is not None:
                    await self._sync(joined)

    async def withdraw(self, record: EndpointRecord) -> None:
        """Take back what would outlast the link in the sandbox of an endpoint that is about to leave: its rules.

        What another endpoint of the sandbox wants as well stays. Errors are logged: nothing may block a Leave. The
        caller holds the endpoint's lock, and the link is still inside.
        """
        if not (record.snapshot and record.snapshot.get("rules")):  # it costs a millisecond to read all of it
            return
        leaving = _Joined.of(Endpoint(record))
        if leaving is None:
            return
        wanted = {rule for other in self._beside(leaving) for rule in other.sandbox_plan.rules}
        sandbox_plan = leaving.sandbox_plan
        rules = tuple(rule for rule in sandbox_plan.rules if rule not in wanted)
        try:
            async with self._sandboxes.hold(leaving.sandbox):
                altname = leaving.endpoint.altname
                taken = await self._kernel.withdraw(leaving.sandbox, altname, replace(sandbox_plan, rules=rules))
        except KernelError as exc:
            log.warning("endpoint.not_withdrawn", endpoint_id=leaving.id, error=str(exc))
        else:
            log.info("endpoint.withdrawn", endpoint_id=leaving.id, taken=taken)

    def _beside(self, joined: _Joined) -> Iterator[_Joined]:
        """Yield the other endpoints of a sandbox."""
        for record in self._store.endpoints_in_sandbox(str(joined.sandbox)):
            other = _Joined.of(Endpoint(record))
            if other is not None and other.id != joined.id:
                yield other

    async def _sync(self, joined: _Joined) -> None:
        # of two links at once, each would find the same routing table free
        async with self._sandboxes.hold(joined.sandbox):
            done = await self._kernel.sync_sandbox(joined.sandbox, joined.endpoint.altname, joined.sandbox_plan)
        if done is None:
            return
        if done:
            log.info("endpoint.synced", endpoint_id=joined.id, added=done)
        watch = self._watches.get(joined.id)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    async def run(self) -> None:
        """Sync the sandboxes of joined endpoints, then watch, until cancelled."""
        ids = [record.id for record in self._store.endpoints() if record.phase is Phase.JOINED]
        self._needy.update(ids)  # until they have been planned, which takes a while
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_up(ids, tasks))
            while True:
                endpoint_id = await self._wanted.get()
                self._watch(endpoint_id, tasks.create_task(self._follow(endpoint_id, has_departed=False)))

    async def _take_up(self, ids: Iterable[EndpointId], tasks: asyncio.TaskGroup) -> None:
        """Sync the sandboxes of endpoints that the previous run joined, a few at once.

        A link that is in the host namespace yet is followed like that of a new endpoint, however long that takes.
        """
        try:
            at_home = {link.state.name for link in await self._kernel.host_links()}
        except KernelError as exc:
            log.warning("sync.links_unknown", error=str(exc))
            at_home = set()
        slots = asyncio.Semaphore(_AT_ONCE)
        for endpoint_id in ids:
            await asyncio.sleep(0)  # a plan takes a millisecond, and Docker's calls come first
            joined = self._find_needy(endpoint_id)
            if joined is not None:
                if joined.endpoint.host_link in at_home:
                    self._wanted.put_nowait(endpoint_id)
                else:
                    await slots.acquire()
                    watch = tasks.create_task(self._follow(endpoint_id, has_departed=True))
                    watch.add_done_callback(lambda _: slots.release())
                    self._watch(endpoint_id, watch)

    def _find_joined(self, endpoint_id: EndpointId) -> _Joined | None:
        record = self._store.find_endpoint(endpoint_id)
        return None if record is None else _Joined.of(Endpoint(record))

    def _find_needy(self, endpoint_id: EndpointId) -> _Joined | None:
        """Return an endpoint whose sandbox needs something; one that needs nothing is forgotten."""
        try:
            joined = self._find_joined(endpoint_id)
            if joined is not None and not joined.sandbox_plan.is_empty:
                return joined
        except Exception:  # a bug with one endpoint must not keep the others from being synced, nor go unseen
            log.exception("sync.bug", endpoint_id=endpoint_id)
        self.forget(endpoint_id)
        return None

    def _watch(self, endpoint_id: EndpointId, watch: asyncio.Task[None]) -> None:
        """Have one task at a time follow an endpoint: the latest."""
        previous = self._watches.get(endpoint_id)
        if previous is not None:
            previous.cancel()
        self._watches[endpoint_id] = watch
        watch.add_done_callback(partial(self._unwatch, endpoint_id))

    def _unwatch(self, endpoint_id: EndpointId, watch: asyncio.Task[None]) -> None:
        if self._watches.get(endpoint_id) is watch:
            del self._watches[endpoint_id]

    async def _follow(self, endpoint_id: EndpointId, *, has_departed: bool) -> None:
        """Wait until libnetwork has placed an endpoint's link in its sandbox, and sync that; errors are logged.

        Args:
            endpoint_id: The endpoint.
            has_departed: The link has left the host namespace already.
        """
        try:
            joined = self._find_joined(endpoint_id)
            if joined is not None and not has_departed:
                await self._kernel.wait_departed(joined.endpoint.host_link)
            joined = self._find_joined(endpoint_id)
            if joined is None:
                self.forget(endpoint_id)
                return
            is_gateway = endpoint_id in self._gateways
            placement = describe_placement(joined.snapshot, internal=joined.internal, is_gateway=is_gateway)
            altname = joined.endpoint.altname
            placed = await self._kernel.wait_placed(joined.sandbox, altname, placement, _PLACEMENT_LIMIT_S)
            if not placed and self._kernel.is_namespace(joined.sandbox):  # else the container is gone already
                log.warning("endpoint.not_placed", endpoint_id=endpoint_id, waited_s=_PLACEMENT_LIMIT_S)
            await self.sync(endpoint_id)
        except KernelError as exc:
            log.warning("endpoint.not_synced", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug in background work must neither end the daemon nor go unseen
            log.exception("sync.bug", endpoint_id=endpoint_id)
