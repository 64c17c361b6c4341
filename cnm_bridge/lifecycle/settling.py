# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Settling: what the plugins made and Docker could not be told is brought into the sandbox after libnetwork's work.

When that is over depends on the engine. From 28 on, and for `docker network connect` everywhere, the sandbox exists at
Join, and the engine asks EndpointOperInfo (and tells ProgramExternalConnectivity) once the link is placed. Before 28 a
container that starts has its sandbox only later, and nobody tells: then the link is watched as it leaves the host
namespace, and the sandbox until libnetwork is done there, which takes milliseconds.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import structlog

from cnm_bridge.kernel import Kernel, KernelError, Settlement, Snapshot
from cnm_bridge.lifecycle.locks import KeyedLocks
from cnm_bridge.lifecycle.naming import alternative_name, host_link_name
from cnm_bridge.lifecycle.settlement import describe_placement, plan_settlement
from state import EndpointId, EndpointRecord, Phase, Store

__all__ = ["Settling"]

log = structlog.get_logger()

_PLACEMENT_LIMIT_S: Final = 10.0
"""How long libnetwork may take from moving the link to its last route; then what there is gets settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """What is of interest of a joined endpoint."""

    id: EndpointId
    internal: bool
    snapshot: Snapshot
    sandbox: Path

    @classmethod
    def of(cls, record: EndpointRecord | None) -> Self | None:
        """Return it for a record, None for one that is not joined."""
        if record is None or record.phase is not Phase.JOINED or not record.snapshot or not record.sandbox_key:
            return None
        snapshot, sandbox = Snapshot.from_json(record.snapshot), Path(record.sandbox_key)
        return cls(id=record.id, internal=record.internal, snapshot=snapshot, sandbox=sandbox)

    @property
    def settlement(self) -> Settlement:
        """What its sandbox is to have."""
        return plan_settlement(self.snapshot, internal=self.internal)


class Settling:
    """Settles endpoints.

    Args:
        store: The records.
        kernel: Settles links.
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

    def join(self, record: EndpointRecord) -> None:
        """Settle an endpoint that is being joined as soon as it is placed; returns at once.

        Nothing is watched where nothing is to be settled, or where the sandbox exists and the engine will call.
        """
        joined = _Joined.of(record)
        if joined is not None and not joined.settlement.is_empty:
            self._needy.add(joined.id)
            if not self._kernel.is_namespace(joined.sandbox):
                self._wanted.put_nowait(joined.id)

    def become_gateway(self, endpoint_id: EndpointId) -> None:
        """Take note that libnetwork makes the endpoint's default routes; returns at once."""
        if endpoint_id in self._needy:
            self._gateways.add(endpoint_id)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Settle an endpoint no more; returns at once."""
        self._needy.discard(endpoint_id)
        self._gateways.discard(endpoint_id)
        watch = self._watches.pop(endpoint_id, None)
        if watch is not None:
            watch.cancel()

    async def settle(self, endpoint_id: EndpointId) -> None:
        """Settle an endpoint now, if it is joined, has something to be settled, and its link is in the sandbox.

        Raises:
            NotSettled: The kernel refused a part.
            KernelError: The sandbox cannot be read.
        """
        if endpoint_id in self._needy:
            async with self._locks.hold(endpoint_id):
                joined = _Joined.of(self._store.find_endpoint(endpoint_id))
                if joined is not None:
                    await self._settle(joined)

    async def withdraw(self, record: EndpointRecord) -> None:
        """Take back what would outlast the link in the sandbox of an endpoint that is about to leave: its rules.

        What another endpoint of the sandbox wants as well stays. Errors are logged: nothing keeps an endpoint. The
        caller holds the endpoint's lock, and the link is still inside.
        """
        if not (record.snapshot and record.snapshot.get("rules")):  # it costs a millisecond to read all of it
            return
        leaving = _Joined.of(record)
        if leaving is None:
            return
        wanted = {rule for other in self._beside(leaving) for rule in other.settlement.rules}
        settlement = leaving.settlement
        rules = tuple(rule for rule in settlement.rules if rule not in wanted)
        try:
            async with self._sandboxes.hold(leaving.sandbox):
                altname = alternative_name(leaving.id)
                taken = await self._kernel.withdraw(leaving.sandbox, altname, replace(settlement, rules=rules))
        except KernelError as exc:
            log.warning("endpoint.not_withdrawn", endpoint_id=leaving.id, error=str(exc))
        else:
            log.info("endpoint.withdrawn", endpoint_id=leaving.id, taken=taken)

    def _beside(self, joined: _Joined) -> Iterator[_Joined]:
        """Yield the other endpoints of a sandbox."""
        for record in self._store.endpoints_in_sandbox(str(joined.sandbox)):
            other = _Joined.of(record)
            if other is not None and other.id != joined.id:
                yield other

    async def _settle(self, joined: _Joined) -> None:
        # of two links at once, each would find the same routing table free
        async with self._sandboxes.hold(joined.sandbox):
            done = await self._kernel.settle(joined.sandbox, alternative_name(joined.id), joined.settlement)
        if done is None:
            return
        if done:
            log.info("endpoint.settled", endpoint_id=joined.id, brought=done)
        watch = self._watches.get(joined.id)
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    async def run(self) -> None:
        """Settle what is joined already, then watch, for as long as it is not cancelled."""
        for record in self._store.endpoints():
            try:
                joined = _Joined.of(record)
                is_needy = joined is not None and not joined.settlement.is_empty
            except Exception:  # a bug with one endpoint must not keep the daemon from starting, nor go unseen
                log.exception("settling.bug", endpoint_id=record.id)
                continue
            if is_needy:
                self._needy.add(record.id)
                self._wanted.put_nowait(record.id)
        async with asyncio.TaskGroup() as tasks:
            while True:
                endpoint_id = await self._wanted.get()
                previous = self._watches.get(endpoint_id)
                if previous is not None:
                    previous.cancel()
                self._watches[endpoint_id] = tasks.create_task(self._follow(endpoint_id))

    async def _follow(self, endpoint_id: EndpointId) -> None:
        """Wait until the endpoint is placed, and settle it."""
        try:
            joined = _Joined.of(self._store.find_endpoint(endpoint_id))
            if joined is None:
                return
            await self._kernel.wait_departed(host_link_name(endpoint_id))
            is_gateway = endpoint_id in self._gateways
            placement = describe_placement(joined.snapshot, internal=joined.internal, is_gateway=is_gateway)
            altname = alternative_name(endpoint_id)
            placed = await self._kernel.wait_placed(joined.sandbox, altname, placement, _PLACEMENT_LIMIT_S)
            if not placed and self._kernel.is_namespace(joined.sandbox):  # else the container is gone already
                log.warning("endpoint.not_placed", endpoint_id=endpoint_id, waited_s=_PLACEMENT_LIMIT_S)
            await self.settle(endpoint_id)
        except KernelError as exc:
            log.warning("endpoint.not_settled", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug in background work must neither end the daemon nor go unseen
            log.exception("settling.bug", endpoint_id=endpoint_id)
        finally:
            if self._watches.get(endpoint_id) is asyncio.current_task():
                del self._watches[endpoint_id]
