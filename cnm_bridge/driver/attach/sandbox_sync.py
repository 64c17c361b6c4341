# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""After libnetwork has configured a sandbox, adds what the plugins made but the reply to Join could not express.

From Engine 28 on the engine calls after it has placed the link. Before, the sandbox of a starting container is made
after Join, and no call follows. Then the driver waits until the link leaves the host namespace, and watches the sandbox
by netlink until libnetwork is done there, some milliseconds later. See
docs/decisions/apply-what-join-cannot-return.md.

Then the addresses are announced to other hosts on the same network: their neighbour entries may have another MAC, and
libnetwork announces only links that it moves, in a form that changes no entry (seen with 28.5: ARP for 0.0.0.0).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.plan_sandbox import SandboxPlan, describe_placement, plan_sandbox
from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.core.options.docker_options import Announcements, parse_announcements
from cnm_bridge.system.kernel import WATCHES_AT_ONCE, Kernel, is_namespace
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.scheduling import KeyedLocks, KeyedTasks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Announcer:
    """Announces addresses, once libnetwork has placed the link.

    After a restart of the daemon nothing is announced again: the neighbours know the addresses, unless the daemon was
    killed within moments of Join.
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


_AT_ONCE: Final = WATCHES_AT_ONCE // 2
"""Endpoints of the previous run that are synced concurrently; starting containers use the other watches."""

_PLACEMENT_LIMIT_S: Final = 10.0
"""Time limit for libnetwork from moving the link to its last route; afterwards the sandbox is synced as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """A joined endpoint, for which sandbox and snapshot are known."""

    endpoint: Endpoint
    snapshot: Snapshot
    sandbox: Path

    @classmethod
    def of(cls, endpoint: Endpoint) -> Self | None:
        """Return the joined endpoint, None if the endpoint is not joined."""
        if endpoint.record.phase is not Phase.JOINED or endpoint.sandbox is None or endpoint.snapshot is None:
            return None
        return cls(endpoint=endpoint, snapshot=endpoint.snapshot, sandbox=endpoint.sandbox)

    @property
    def sandbox_plan(self) -> SandboxPlan:
        """The plan for its sandbox."""
        return plan_sandbox(self.snapshot, internal=self.endpoint.record.internal)


@dataclass(slots=True)
class SandboxSync:
    """Syncs the sandboxes of endpoints, and announces their addresses."""

    store: Store
    kernel: Kernel
    locks: KeyedLocks[EndpointId]
    version: KnownVersion
    _announcer: Announcer = field(init=False)
    _sandboxes: KeyedLocks[Path] = field(default_factory=KeyedLocks, init=False)
    _watches: KeyedTasks[EndpointId] = field(default_factory=lambda: KeyedTasks("sandboxes"), init=False)
    _candidates: set[EndpointId] = field(default_factory=set, init=False)
    _gateways: set[EndpointId] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._announcer = Announcer(self.store, self.kernel)
        self.store.when_removed(self.forget)

    def join(self, endpoint: Endpoint) -> None:
        """Request the sync of an endpoint that is being joined, once its link is placed; does not block.

        Starts no watch if there is nothing to add or announce, or if the engine will call: from Engine 28 on, if the
        sandbox exists. An older engine calls for a container that is running already, but not if an endpoint of
        Docker's own bridge with exposed ports comes first (moby `daemon/network.go`, getPortMapInfo).
        """
        joined = _Joined.of(endpoint)
        if joined is None:
            return
        is_wanted = self._announcer.join(endpoint)
        if not joined.sandbox_plan.is_empty:
            self._candidates.add(joined.endpoint.id)
            is_wanted = True
        version = self.version.current
        engine_calls = version is not None and version.makes_sandbox_first and is_namespace(joined.sandbox)
        if is_wanted and not engine_calls:
            self._watch(joined.endpoint.id)

    def become_gateway(self, endpoint_id: EndpointId) -> None:
        """Record that the endpoint is its container's gateway endpoint, for which libnetwork adds default routes."""
        if endpoint_id in self._candidates:
            self._gateways.add(endpoint_id)

    def stop_being_gateway(self, endpoint_id: EndpointId) -> None:
        """Record that the endpoint is not, or no longer, its container's gateway endpoint.

        While a container starts on several networks, each joined endpoint may replace the previous gateway endpoint.
        """
        self._gateways.discard(endpoint_id)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Stop syncing the sandbox of an endpoint; does not block."""
        self._candidates.discard(endpoint_id)
        self._gateways.discard(endpoint_id)
        self._announcer.forget(endpoint_id)
        self._watches.cancel(endpoint_id)

    async def sync(self, endpoint_id: EndpointId) -> None:
        """Sync the sandbox of an endpoint now, if it is joined, its plan is not empty, and the link is in the sandbox.

        Its addresses are announced in the background, unless they have been. Raises `KernelError` if some of it could
        not be added, or the sandbox cannot be read.
        """
        try:
            if endpoint_id in self._candidates:
                async with self.locks.hold(endpoint_id):
                    joined = self._find_joined(endpoint_id)
                    if joined is not None:
                        await self._sync(joined)
        finally:
            self._announcer.placed(endpoint_id)

    async def as_allowed(self, sandbox: Path, snapshot: Snapshot) -> Snapshot:
        """Return a link's snapshot as its sandbox allows it: without IPv6, if the user has disabled that there."""
        version = self.version.current
        if version is None or version.disables_ipv6:  # the setting may be the engine's
            return snapshot
        return await self.kernel.as_allowed(sandbox, snapshot)

    async def withdraw(self, record: EndpointRecord) -> None:
        """Remove the policy rules of an endpoint that is leaving its sandbox: they would outlast the link.

        Rules that another endpoint of the sandbox needs are kept. Errors are only logged: nothing may block a Leave.
        The caller holds the endpoint's lock, and the link is still in the sandbox.
        """
        if not (record.snapshot and record.snapshot.get("rules")):
            return
        leaving = _Joined.of(Endpoint(record))
        if leaving is None:
            return
        wanted = {rule for other in self._others_in_sandbox(leaving) for rule in other.sandbox_plan.rules}
        sandbox_plan = leaving.sandbox_plan
        rules = tuple(rule for rule in sandbox_plan.rules if rule not in wanted)
        try:
            async with self._sandboxes.hold(leaving.sandbox):
                link = self.kernel.link_in_sandbox(leaving.sandbox, leaving.endpoint.altname)
                taken = await link.withdraw(replace(sandbox_plan, rules=rules))
        except KernelError as exc:
            log.warning("endpoint.not_withdrawn", endpoint_id=leaving.endpoint.id, error=str(exc))
        else:
            log.info("endpoint.withdrawn", endpoint_id=leaving.endpoint.id, taken=taken)

    def _others_in_sandbox(self, joined: _Joined) -> Iterator[_Joined]:
        for record in self.store.endpoints_in_sandbox(joined.sandbox):
            other = _Joined.of(Endpoint(record))
            if other is not None and other.endpoint.id != joined.endpoint.id:
                yield other

    async def _sync(self, joined: _Joined) -> None:
        # one at a time: two links would choose the same unused routing table
        async with self._sandboxes.hold(joined.sandbox):
            # Before Engine 28 it is not known at Join.
            allowed = replace(joined, snapshot=await self.as_allowed(joined.sandbox, joined.snapshot))
            link = self.kernel.link_in_sandbox(joined.sandbox, joined.endpoint.altname)
            added = await link.sync(allowed.sandbox_plan)
        if added is None:
            return
        if added:
            log.info("endpoint.synced", endpoint_id=joined.endpoint.id, added=added)
        self._watches.cancel(joined.endpoint.id)

    async def run(self) -> None:
        """Sync the sandboxes of joined endpoints, then watch, and announce addresses, until cancelled."""
        ids = [record.id for record in self.store.endpoints() if record.phase is Phase.JOINED]
        self._candidates.update(ids)  # until they have been planned
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sync_previous(ids))
            tasks.create_task(self._watches.run())
            tasks.create_task(self._announcer.run())

    async def _sync_previous(self, ids: Iterable[EndpointId]) -> None:
        """Sync the sandboxes of endpoints that the previous run joined, a few at a time.

        A link that is still in the host namespace is followed like that of a new endpoint, without a time limit.
        """
        try:
            in_host_netns = {link.state.name for link in await self.kernel.host_links()}
        except KernelError as exc:
            log.warning("sync.links_unknown", error=str(exc))
            in_host_netns = set()
        slots = asyncio.Semaphore(_AT_ONCE)
        for endpoint_id in ids:
            await asyncio.sleep(0)  # a plan takes a millisecond, and Docker's calls come first
            joined = self._find_candidate(endpoint_id)
            if joined is not None:
                self._watch(endpoint_id, None if joined.endpoint.host_link in in_host_netns else slots)

    def _find_joined(self, endpoint_id: EndpointId) -> _Joined | None:
        record = self.store.find_endpoint(endpoint_id)
        return None if record is None else _Joined.of(Endpoint(record))

    def _find_candidate(self, endpoint_id: EndpointId) -> _Joined | None:
        """Return the endpoint if its plan is not empty; otherwise stop syncing it and return None."""
        try:
            joined = self._find_joined(endpoint_id)
            if joined is not None and not joined.sandbox_plan.is_empty:
                return joined
        except Exception:  # a bug with one endpoint must be logged and must not stop the others
            log.exception("sync.bug", endpoint_id=endpoint_id)
        self.forget(endpoint_id)
        return None

    def _watch(self, endpoint_id: EndpointId, slots: asyncio.Semaphore | None = None) -> None:
        """Sync the sandbox of an endpoint in the background, once its link is placed.

        `slots` are waited for first, if the link has already left the host namespace.
        """
        self._watches.begin(endpoint_id, partial(self._follow, endpoint_id, slots))

    async def _follow(self, endpoint_id: EndpointId, slots: asyncio.Semaphore | None) -> None:
        try:
            joined = self._find_joined(endpoint_id)
            if joined is not None and slots is None:
                await self.kernel.wait_departed(joined.endpoint.host_link)
            async with slots or nullcontext():
                await self._sync_placed(endpoint_id)
        except KernelError as exc:
            log.warning("endpoint.not_synced", endpoint_id=endpoint_id, error=str(exc))

    async def _sync_placed(self, endpoint_id: EndpointId) -> None:
        joined = self._find_joined(endpoint_id)
        if joined is None:
            self.forget(endpoint_id)
            return
        is_gateway = endpoint_id in self._gateways
        placement = describe_placement(joined.snapshot, internal=joined.endpoint.record.internal, is_gateway=is_gateway)
        link = self.kernel.link_in_sandbox(joined.sandbox, joined.endpoint.altname)
        placed = await link.wait_placed(placement, _PLACEMENT_LIMIT_S)
        if not placed and is_namespace(joined.sandbox):  # otherwise the container has been removed
            log.warning("endpoint.not_placed", endpoint_id=endpoint_id, waited_s=_PLACEMENT_LIMIT_S)
        await self.sync(endpoint_id)
