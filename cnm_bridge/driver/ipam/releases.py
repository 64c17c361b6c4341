# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs IPAM plugins for addresses that no link has yet, and releases addresses in the background.

A release is repeated, with growing pauses, until the IPAM plugin's DEL has completed.

An address of an endpoint of this driver is released only when the endpoint's teardown has completed: Docker releases it
as soon as DeleteEndpoint is answered, and until then plugins may still find rules by it.

CNI wants a network namespace for ADD and DEL (SPEC §2, CNI_NETNS), and the plugins' library checks that it is not the
host's. There is no container yet, so all plugins receive the same one, which has nothing but `lo`. It exists as long as
there are reservations.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AddressId, AddressPhase, AddressRecord, EndpointId, ReservationRecord, StateError
from cni_bridge_state.store import Store
from cni_invoker import Attachment, CniError, NetworkConfigurationList, Result, Runtime
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link_state import IpNetwork
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel, is_namespace
from cnm_bridge.system.retries import Retries, Retry
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_IFNAME: Final = "eth0"
"""CNI_IFNAME of all reservations: each has a container ID of its own."""


class PluginRuns:
    """Runs ADD and DEL of IPAM plugins. After a `KernelError`, when there is no namespace, the plugin has not run."""

    def __init__(self, runtime: Runtime, kernel: Kernel, run_dir: Path) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self.netns = run_dir / "ipam" / "netns"
        self._lock = asyncio.Lock()
        self._running = 0

    async def add(self, record: AddressRecord, reservation: ReservationRecord) -> Result:
        """Run ADD; a plugin that failed may have reserved the address all the same."""
        async with self._namespace():
            return await self._runtime.add(_network(reservation), _attachment(record, reservation))

    async def delete(self, record: AddressRecord, reservation: ReservationRecord) -> None:
        """Run DEL; it may be repeated. After an error the address may still be reserved."""
        network = _network(reservation)
        stored = reservation.result
        result = None if stored is None else Result.from_document(stored, cni_version=network.cni_version)
        added = 0 if result is None else 1
        async with self._namespace():
            await self._runtime.delete(network, _attachment(record, reservation), result, added_plugins=added)

    async def tidy(self, is_unused: Callable[[], bool]) -> None:
        """Remove the namespace if there is no reservation, and no plugin is running."""
        async with self._lock:
            if not self._running and is_unused() and is_namespace(self.netns):
                await self._kernel.remove_staging(self.netns)

    @asynccontextmanager
    async def _namespace(self) -> AsyncIterator[None]:
        """Keep the namespace while the block runs; make it if it does not exist."""
        self._running += 1
        try:
            async with self._lock:
                if not is_namespace(self.netns):
                    await self._kernel.create_staging(self.netns)
            yield
        finally:
            self._running -= 1


def _network(reservation: ReservationRecord) -> NetworkConfigurationList:
    return NetworkConfigurationList.from_document(reservation.configuration)


def _attachment(record: AddressRecord, reservation: ReservationRecord) -> Attachment:
    return Attachment(
        container_id=record.id,
        ifname=_IFNAME,
        netns=reservation.netns,
        args=reservation.args,
        capability_args=reservation.capability_args,
    )


_PATIENCE_S: Final = 10.0
"""How long a call waits for the first attempts."""

PendingRelease = Retry[AddressId]


class Releases:
    """The pending releases. Methods raise `StateError` if a request cannot be stored."""

    def __init__(
        self, store: Store, plugins: PluginRuns, teardowns: TeardownQueue, locks: KeyedLocks[AddressId]
    ) -> None:
        self._store = store
        self._plugins = plugins
        self._teardowns = teardowns
        self._locks = locks
        self._retries: Retries[AddressId, PendingRelease] = Retries(lambda record_id: Retry(key=record_id))
        self._waiting: dict[EndpointId, set[PendingRelease]] = {}
        """Endpoint that has addresses → releases that wait for its end."""
        self._released: Counter[str] = Counter()
        self._unanswered: set[AddressId] = set()
        """Reservations without an answer of the plugin, or of the previous run: it may have assigned an address."""
        store.when_removed(self._note_removed)

    @property
    def all(self) -> Mapping[AddressId, PendingRelease]:
        """The pending releases, by ID of the address."""
        return self._retries.all

    def add_unfinished(self) -> int:
        """Begin the releases that the previous run of the daemon left; return how many there are.

        An address that is PENDING was not given to Docker: its call was never answered.
        """
        unfinished = [record.id for record in self._store.ipam.addresses() if record.phase is not AddressPhase.RESERVED]
        for record_id in unfinished:
            self.begin(record_id)
        self._unanswered.update(unfinished)
        return len(unfinished)

    def note_unanswered(self, record_id: AddressId) -> None:
        """Note that the plugin may have assigned an address: calls on a full pool wait for the release."""
        self._unanswered.add(record_id)

    def hold(self, record_id: AddressId) -> AbstractAsyncContextManager[None]:
        """Hold the lock of an address: it is not released meanwhile."""
        return self._locks.hold(record_id)

    def begin(self, record_id: AddressId) -> PendingRelease:
        """Begin a release, unless it is pending already; does not block."""
        pending = self._retries.add(record_id)
        pending.wake.set()
        return pending

    async def begin_all(self, records: Iterable[AddressRecord]) -> None:
        """Store that addresses are to be released, and begin with it."""
        await asyncio.gather(*map(self._store_and_begin, records))

    async def release_all(self, records: Iterable[AddressRecord]) -> None:
        """Begin releases, and wait for the first attempts, for a limited time.

        The teardown of an endpoint that has such an address is not waited for.
        """
        released = tuple(records)
        await self.begin_all(released)
        waited = [
            record.id
            for record in released
            if self._store.ipam.find_address(record.id) and not self._find_holders(record.id)
        ]
        await self.wait_tried(waited, _PATIENCE_S)

    async def _store_and_begin(self, record: AddressRecord) -> None:
        stored = self._store.ipam.find_address(record.id)
        if stored is not None and stored.phase is not AddressPhase.RELEASING:  # otherwise a DEL may hold the lock
            async with self._locks.hold(record.id):
                stored = self._store.ipam.find_address(record.id)
                if stored is not None:
                    await self._store.ipam.put_address(replace(stored, phase=AddressPhase.RELEASING))
        if stored is not None:
            self.begin(record.id)

    def count_released(self, section: str) -> int:
        """Return how many addresses of a section have been released in this run of the daemon."""
        return self._released[section]

    async def wait_released(self, section: str, wanted: IpNetwork, since: int, limit_s: float) -> bool:
        """Wait until an address of a section is released; return whether one is, before the time is over.

        One is enough, so a plugin that hangs does not keep what the others release. If all pending releases have been
        tried and have failed, there is nothing to wait for. Those of other pools of the section do not count.

        `wanted` is what the call chooses from: a part of a subnet, or one address. `since` is the result of
        `count_released` before that call has looked for one.
        """

        def is_any_released() -> bool:
            return self._released[section] != since

        pending = [
            record.id
            for record in map(self._store.ipam.find_address, self.all)
            if record is not None and record.section == section and self._may_free(record, wanted)
        ]
        await self.wait_tried(pending, limit_s, or_until=is_any_released)
        return is_any_released()

    async def wait_tried(
        self, record_ids: Iterable[AddressId], limit_s: float, *, or_until: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait for the first attempts of releases, or for the next ones of those that have failed.

        Endpoints that have the addresses, and whose teardown is pending, are torn down at once.
        """
        pending = {record_id: self.begin(record_id) for record_id in record_ids}
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
                hastening = tasks.create_task(self._hasten_teardowns(pending))
                await self._retries.wait_attempted(pending.values(), or_until=or_until)
                hastening.cancel()

    async def _hasten_teardowns(self, record_ids: Iterable[AddressId]) -> None:
        """Have the endpoints with these addresses torn down, also those whose teardown has failed."""
        holders = {holder for record_id in record_ids for holder in self._find_holders(record_id)}
        for holder in holders:
            if self._teardowns.is_pending(holder):
                self._teardowns.add(holder)  # the pause after a failed attempt may be minutes
        if holders:
            await self._teardowns.wait_left(holders)

    async def run(self) -> None:
        """Run the pending releases until cancelled. Then it can be called again, and continues with all of them."""
        with suppress(KernelError):  # tried again when the next address is released
            await self._plugins.tidy(lambda: self._store.ipam.is_empty)
        await self._retries.run(self._attempt)

    async def _attempt(self, pending: PendingRelease) -> bool:
        while holders := self._find_holders(pending.key):
            for holder in holders:
                self._waiting.setdefault(holder, set()).add(pending)
            await pending.wake.wait()
            pending.wake.clear()
        try:
            async with self._locks.hold(pending.key):
                await self._release(pending.key)
            await self._plugins.tidy(lambda: self._store.ipam.is_empty)
        except (CniError, KernelError, StateError) as exc:
            pending.fail(str(exc))
            log.warning("address.release_pending", address_id=pending.key, error=str(exc))
            return False
        return True

    def _note_removed(self, endpoint_id: EndpointId) -> None:
        """Begin the releases of an endpoint's addresses, whose teardown has completed."""
        for pending in self._waiting.pop(endpoint_id, ()):
            pending.wake.set()

    async def _release(self, record_id: AddressId) -> None:
        ipam = self._store.ipam
        record = ipam.find_address(record_id)
        if record is None:
            self._unanswered.discard(record_id)
            return
        if record.phase is AddressPhase.PENDING:
            record = replace(record, phase=AddressPhase.RELEASING)
            await ipam.put_address(record)
        if record.phase is not AddressPhase.RELEASING:  # it was given again
            return
        if record.reservation is not None:
            await self._plugins.delete(record, record.reservation)
        await ipam.remove_address(record_id)
        self._released[record.section] += record.address is not None or record_id in self._unanswered
        self._unanswered.discard(record_id)
        log.info("address.released", section=record.section, address=str(record.address), name=record.name)

    def _may_free(self, record: AddressRecord, wanted: IpNetwork) -> bool:
        """Return whether a release may free an address in a network; what a refused call undoes has none."""
        if record.address is None:
            return record.id in self._unanswered
        return record.address.ip in wanted

    def _find_holders(self, record_id: AddressId) -> tuple[EndpointId, ...]:
        """Return the endpoints of this driver that have received an address, however far their teardown is."""
        record = self._store.ipam.find_address(record_id)
        if record is None or record.address is None:
            return ()
        subnet = record.address.network
        found = []
        for endpoint in self._store.endpoints_with_address([str(record.address.ip)]):
            if record.address in {endpoint.requested.address, endpoint.requested.address_ipv6}:
                network = self._store.find_network(endpoint.network_id)
                if network is None or any(pool.is_own and pool.subnet == subnet for pool in network.pools):
                    found.append(endpoint.id)
        return tuple(found)
