# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the plugins' GC (CNI SPEC "Garbage collection"), if the operator has enabled it.

GC does not replace the teardown: an endpoint whose teardown is pending stays valid until that completes. GC removes
what has no record. So it runs only if every endpoint in use certainly has one. Plugins cannot know who owns an address,
so no other program may use CNI networks of the same names; see docs/decisions/0008-plugin-gc-is-asked-for.md.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state import AddressRecord, AttachmentId, EndpointRecord, HoldRecord, ReservationRecord
from cni_bridge_state.store import Store
from cni_invoker import AttachmentKey, AttachmentReader, CachedAttachment, CniError, NetworkConfigurationList, Runtime
from cni_invoker.advanced import collect_garbage
from cni_invoker.errors import CacheDamaged
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.model.naming import attachment_of, attachments_of_others
from cnm_bridge.driver.ipam.plugin_runs import attachment_of_address
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.time_slice import TimeSlice

log = structlog.get_logger()

_WAIT_S: Final = 1.0
"""Limit for the locks of a network. New containers on the network wait meanwhile, so GC gives up and tries later."""
_RETRY_S: Final = 10.0
"""Pause before the next attempt if GC was deferred."""


class PluginGc:
    """Runs GC.

    Args:
        runtime: Runs the plugins; the same runtime that runs ADD and DEL.
        own: The daemon's attachments.
        others: The caches of other runtimes on this host. Their attachments are valid too.
    """

    def __init__(self, runtime: Runtime, own: AttachmentReader, others: Sequence[AttachmentReader]) -> None:
        self._runtime = runtime
        self._own = own
        self._others = tuple(others)

    async def collect(self, configurations: Iterable[NetworkConfigurationList]) -> None:
        """Run GC once for each of these lists, and for each list that an endpoint was added with.

        All attachments to a network of the same name are valid, whichever list they were added with. Errors are logged;
        the next round tries again.

        Args:
            configurations: The lists of the networks now, each in the CNI version that its plugins receive.
        """
        lists: dict[tuple[str, bytes], NetworkConfigurationList] = {}
        try:
            for network in configurations:
                lists.setdefault((network.name, render_json(network.document)), network)
            async for network in self._stored():
                lists.setdefault((network.name, render_json(network.document)), network)
        except CniError as exc:
            log.warning("gc.failed", error=str(exc))
            return
        for network in lists.values():
            try:
                await collect_garbage(self._runtime, network, (self._own, *self._others), wait_s=_WAIT_S)
            except CniError as exc:
                log.warning("gc.failed", configuration=network.name, error=str(exc))

    async def run(
        self,
        find_configurations: Callable[[], Awaitable[Iterable[NetworkConfigurationList]]],
        find_gap: Callable[[], Awaitable[str | None]],
        *,
        every_s: float,
    ) -> None:
        """Run GC periodically until cancelled.

        Args:
            find_configurations: Returns the lists of the networks now.
            find_gap: Returns None if every endpoint in use has a record, else the reason why that is not certain. Then
                GC is deferred, because the container of an endpoint without a record would lose its address. A
                container that is starting or stopping can be the reason, so the next attempt is soon.
            every_s: The interval in seconds.
        """
        logged: str | None = None
        while True:
            gap: str | None = None
            try:
                gap = await find_gap()
                if gap is None:
                    await self.collect(await find_configurations())
                elif gap != logged:
                    log.warning("gc.deferred", reason=gap)
                logged = gap
            except Exception:  # a bug in background work is logged, and must not end the daemon
                log.exception("gc.bug")
            await asyncio.sleep(every_s if gap is None else min(every_s, _RETRY_S))

    async def _stored(self) -> AsyncIterator[NetworkConfigurationList]:
        time_slice = TimeSlice()
        for cached in await self._own.list():
            await time_slice.pause()
            if cached.configuration is not None:
                yield NetworkConfigurationList.from_document(cached.configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryCheck:
    """Compares the endpoints of the engine and the kernel with the records.

    Attributes:
        driver: This driver's name in Docker.
        run_dir: The parent directory of the staging namespaces.
    """

    store: Store
    engine: Engine
    kernel: Kernel
    driver: str
    run_dir: Path

    async def find_gap(self) -> str | None:
        """Return None if every endpoint in use has a record, else the reason why that is not certain.

        Raises:
            StateError: The records cannot be read.
        """
        try:
            return await self._find_gap()
        except (EngineUnavailable, KernelError) as exc:
            return str(exc)

    async def _find_gap(self) -> str | None:
        identity = await self.engine.identity()
        if identity != self.store.engine_identity():
            return f"the engine {identity} has not been seen to use this driver"
        stored = {record.id for record in self.store.networks()}
        in_engine: set[str] = set()
        for network_id in sorted({*stored, *await self.engine.network_ids(self.driver)}):
            network = await self.engine.find_network(network_id)
            if network is None:
                continue
            if network.driver != self.driver:  # so `network_ids(self.driver)` was incomplete
                return f"network {network_id} is of driver {network.driver}, and this one is {self.driver}"
            in_engine.update(network.endpoints)
        seen = await self.kernel.look_into_sandboxes()
        for error in seen.unread.values():
            return error
        attached = {attachment_id for name in seen.links if (attachment_id := attachment_of(name)) is not None}
        others = attachments_of_others(await self.kernel.mounted_namespaces(), self.run_dir)
        # Read last, so that an endpoint created meanwhile has its record here.
        records = self.store.endpoints()
        unknown = in_engine - {record.id for record in records}
        known = {record.attachment.id for record in records}
        if others - known:
            return f"endpoint {min(others - known)} belongs to another cni-bridge on this host"
        unknown |= attached - known
        if unknown:
            return f"endpoint {min(unknown)} has no record"
        return await self._find_unknown_address()

    async def _find_unknown_address(self) -> str | None:
        """Return which address of a network with this IPAM driver has no record; the gateways of sections need none."""
        networks = await self.engine.ipam_networks(self.driver)
        known = {record.address.ip for record in self.store.ipam.addresses() if record.address is not None}
        known |= {pool.gateway for pool in self.store.ipam.pools() if pool.gateway is not None}
        unknown = {str(address) for network in networks for address in network.addresses - known}
        return f"address {min(unknown)} of Docker has no record" if unknown else None


@dataclass(frozen=True, slots=True)
class EndpointCache:
    """An `AttachmentReader` over a `Store`.

    It contains the addresses that Docker has requested, those of keys, and endpoints of every phase: from PENDING on an
    ADD may have run, and in DELETING a DEL is pending. It does not check whether Docker still has them. If the database
    was damaged, the store is not `whole` until the operator removes the copies of the damaged files.
    """

    store: Store

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # the protocol's
        """Run the body at once: no other process can open the store."""
        return nullcontext()

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return this attachment to the CNI network called `network`, None if there is no such endpoint."""
        record = self.store.find_attachment(AttachmentId(key.container_id))
        reserved = self.store.ipam.find_reservation(key.container_id)
        if reserved is not None and reserved.reservation is not None:
            cached: CachedAttachment | None = _cached_address(reserved, reserved.reservation)
        else:
            cached = None if record is None else _cached(record)
        return cached if cached and (cached.network, cached.attachment.key) == (network, key) else None

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all endpoints, or those on one CNI network, by ID."""
        for copy in self.store.damaged_copies() if whole else ():
            raise CacheDamaged(
                copy, "it may contain endpoints whose records were lost; remove it when no container uses them"
            )
        found = []
        time_slice = TimeSlice()
        for record in self.store.endpoints():
            if network in {None, record.attachment.network}:
                found.append(_cached(record))
                await time_slice.pause()
        for reserved in self.store.ipam.reservations():
            if reserved.reservation is not None and network in {None, reserved.section}:
                found.append(_cached_address(reserved, reserved.reservation))
                await time_slice.pause()
        return tuple(found)


def _cached(record: EndpointRecord) -> CachedAttachment:
    configuration = _with_one_version(record.attachment.configuration, record.attachment.cni_version)
    return CachedAttachment(
        network=record.attachment.network,
        attachment=Endpoint(record).attachment,
        configuration=configuration,
        result=record.result,
        boot_id=record.boot_id,
        added_plugins=record.added_plugins,
    )


def _cached_address(record: AddressRecord | HoldRecord, reservation: ReservationRecord) -> CachedAttachment:
    return CachedAttachment(
        network=record.section,
        attachment=attachment_of_address(record, reservation),
        configuration=reservation.configuration,
        result=reservation.result,
        boot_id="",
        added_plugins=0 if reservation.result is None else 1,
    )


def _with_one_version(configuration: JsonObject, version: str) -> JsonObject:
    """Return a list that offers only the CNI version that its plugins received at ADD."""
    return {**{key: value for key, value in configuration.items() if key != "cniVersions"}, "cniVersion": version}
