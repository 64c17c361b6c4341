# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests for an address of a pool whose addresses are all assigned, and releases of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Final, cast

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressId, AddressPhase, AddressRecord, PoolId, ReservationRecord
from cni_bridge_state.store import Store
from cni_invoker import CniError, ConfigurationDirectories, PluginFailed, Result, Runtime
from cni_invoker.documents.versions import Verb
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.ipam.wire import ReleaseAddress, RequestAddress
from cnm_bridge.driver.ipam import service as requests
from cnm_bridge.driver.ipam.releases import PluginRuns, Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.scheduling import KeyedLocks
from tests.records import address_pool, address_record

POOL: Final = PoolId("lan,10.1.2.0/24,,5f0c81aa")
HIGH: Final = PoolId("lan,10.1.2.0/24,10.1.2.128/25,5f0c81ab")
ANY: Final = RequestAddress(pool=POOL, address=None)
ADDRESSES: Final = [IPv4Address("10.1.2.5"), IPv4Address("10.1.2.6")]
UNANSWERED: Final = AddressId("0" * 64)
"""A reservation of the previous run, which has the second address without its record having it."""
LIMIT_S: Final = 20.0
"""The limit of a test; the calls wait longer."""


@dataclass(slots=True)
class Plugins:
    """Stands in for the runs of a plugin with two addresses; the DEL of each hangs until its event is set."""

    netns: Path = Path("/run/netns/1")
    assigned: set[IPv4Address] = field(default_factory=set)
    goes_on: dict[IPv4Address, asyncio.Event] = field(
        default_factory=lambda: {one: asyncio.Event() for one in ADDRESSES}
    )
    error: CniError | None = None
    stopped: AddressId | None = None
    stops_add: bool = False
    refused: asyncio.Event = field(default_factory=asyncio.Event)

    async def add(self, record: AddressRecord, reservation: ReservationRecord) -> Result:
        """Assign the first free address."""
        free = [one for one in ADDRESSES if one not in self.assigned]
        if not free:
            self.refused.set()
            raise refusal("no address is available")
        self.assigned.add(free[0])
        if self.stops_add:
            self.stops_add, self.stopped = False, record.id
            raise PluginTimeout(plugin="two", verb=Verb.ADD, path=Path("/two"), timeout_s=60, started=True)
        document: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": f"{free[0]}/24"}]}
        return Result.from_document(document, cni_version=str(reservation.configuration["cniVersion"]))

    async def delete(self, record: AddressRecord, _: ReservationRecord) -> None:
        """Release an address, if any."""
        if record.id == UNANSWERED:
            await self.goes_on[ADDRESSES[1]].wait()
            self.assigned.remove(ADDRESSES[1])
        if record.id == self.stopped:
            await self.goes_on[ADDRESSES[0]].wait()
            self.assigned.remove(ADDRESSES[0])
        if record.address is None:
            return
        if self.error is not None:
            raise self.error
        address = IPv4Address(record.address.ip)
        await self.goes_on[address].wait()
        self.assigned.remove(address)

    async def tidy(self, _: Callable[[], bool]) -> None:
        """There is no namespace."""


def refusal(text: str) -> PluginFailed:
    """Return the error of a plugin that refuses."""
    path = Path("/two")
    return PluginFailed(plugin="two", verb="ADD", path=path, code=1, msg=text, exit_status=1, signal=None, duration_s=0)


@pytest.fixture(name="plugins")
def make_plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The plugins; calls wait for longer than a test may take."""
    monkeypatch.setattr(requests, "_PATIENCE_S", 10 * LIMIT_S)
    return Plugins()


@pytest.fixture(name="service")
async def serve(tmp_path: Path, plugins: Plugins) -> AsyncIterator[IpamService]:
    """The service, whose pool has given both addresses to containers."""
    ipam = {"type": "two", "subnet": "10.1.2.0/24"}
    (tmp_path / "lan.ipam").write_text(json.dumps({"cniVersion": "1.0.0", "name": "lan", "ipam": ipam}))
    (tmp_path / "two").write_text('#!/bin/sh\necho \'{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}\'\n')
    (tmp_path / "two").chmod(0o755)
    store = Store.open(tmp_path / "state")
    teardowns = cast("TeardownQueue", None)  # no endpoint has an address
    releases = Releases(store, cast("PluginRuns", plugins), teardowns, KeyedLocks())
    service = IpamService(
        store=store,
        sections=Sections(ConfigurationDirectories(tmp_path)),
        runtime=Runtime([tmp_path]),
        plugins=cast("PluginRuns", plugins),
        releases=releases,
    )
    for pool, part in ((POOL, None), (HIGH, ip_network("10.1.2.128/25"))):
        await store.ipam.pools.put(address_pool(pool, sub_pool=part))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(releases.run())
        for _ in ADDRESSES:
            await service.request_address(ANY)
        try:
            yield service
        finally:
            running.cancel()
    store.close()


@pytest.mark.parametrize("is_late", [False, True])
async def test_one_address_is_enough(service: IpamService, plugins: Plugins, *, is_late: bool) -> None:
    """A request is answered as soon as one address is free, while the DEL of another one hangs."""
    hanging, leaving = ADDRESSES
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        await release(service, hanging)
        if not is_late:
            await release(service, leaving)
        requested = tasks.create_task(service.request_address(ANY))
        await plugins.refused.wait()
        await asyncio.sleep(0.1)
        assert not requested.done()
        plugins.goes_on[leaving].set()
        if is_late:
            await release(service, leaving)
        assert (await requested).ip == leaving
        assert hanging in plugins.assigned
        plugins.goes_on[hanging].set()


async def test_no_release_helps(service: IpamService, plugins: Plugins) -> None:
    """If all pending releases fail, the plugin's own refusal is the answer."""
    plugins.error = CniError("the disk is full")
    await asyncio.gather(*(release(service, address) for address in ADDRESSES))
    with pytest.raises(CniError, match="no address is available"):
        await service.request_address(ANY)


async def test_another_pool_of_the_section(service: IpamService, plugins: Plugins) -> None:
    """A release that hangs is not waited for by a pool that its address is not of."""
    async with asyncio.timeout(LIMIT_S):
        await release(service, ADDRESSES[0])
        with pytest.raises(CniError, match="no address is available"):
            await service.request_address(replace(ANY, pool=HIGH))
        assert ADDRESSES[0] in plugins.assigned
        plugins.goes_on[ADDRESSES[0]].set()


async def test_what_the_previous_run_left(service: IpamService, plugins: Plugins) -> None:
    """A reservation that the previous run was killed in may have an address; its release is waited for."""
    (record,) = (one for one in service.store.ipam.addresses() if one.address and one.address.ip == ADDRESSES[1])
    await service.store.ipam.put_address(replace(record, phase=AddressPhase.RELEASING))
    await service.store.ipam.remove_address(record.id)
    await service.store.ipam.put_address(replace(record, id=UNANSWERED, phase=AddressPhase.PENDING, address=None))
    assert service.releases.add_unfinished() == 1
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        requested = tasks.create_task(service.request_address(ANY))
        await plugins.refused.wait()
        await asyncio.sleep(0.1)
        assert not requested.done()
        plugins.goes_on[ADDRESSES[1]].set()
        assert (await requested).ip == ADDRESSES[1]


async def test_an_add_that_was_stopped(service: IpamService, plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ADD that its time limit stopped may have assigned an address: others wait for its undo."""
    monkeypatch.setattr(requests, "_UNDO_S", 0.05)
    plugins.goes_on[ADDRESSES[0]].set()
    await release(service, ADDRESSES[0])
    plugins.goes_on[ADDRESSES[0]].clear()
    plugins.stops_add = True
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        with pytest.raises(PluginTimeout):
            await service.request_address(ANY)
        requested = tasks.create_task(service.request_address(ANY))
        await plugins.refused.wait()
        await asyncio.sleep(0.1)
        assert not requested.done()
        plugins.goes_on[ADDRESSES[0]].set()
        assert (await requested).ip == ADDRESSES[0]


async def release(service: IpamService, address: IPv4Address) -> None:
    """Release an address as Docker does, which does not wait for the plugin."""
    await service.release_address(ReleaseAddress(pool=POOL, address=address))


PENDING = address_record(pool="lan,10.1.2.0/24,,5f0c81aa")


class FailingPlugins:
    """Stands in for the runs of plugins: a DEL fails as often as there are errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.deleted: list[AddressId] = []

    async def delete(self, record: AddressRecord, _: ReservationRecord) -> None:
        """Fail, or succeed after all errors."""
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(record.id)

    async def tidy(self, _: Callable[[], bool]) -> None:
        """There is no namespace."""


@pytest.mark.parametrize("count", [1, 2])
async def test_a_call_waits_for_the_next_attempt(store: Store, count: int) -> None:
    """After a failed attempt the address is free when the call goes on, if the plugin works again."""
    await store.ipam.put_address(PENDING)
    plugins = FailingPlugins(KernelError("make", "a namespace", "no space"))
    teardowns = cast("TeardownQueue", None)  # no endpoint has the address
    releases = Releases(store, cast("PluginRuns", plugins), teardowns, KeyedLocks())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(releases.run())
        await releases.wait_tried([PENDING.id], 5)
        assert "no space" in str(releases.all[PENDING.id].error)
        await asyncio.gather(*(releases.wait_tried([PENDING.id], 5) for _ in range(count)))
        assert plugins.deleted == [PENDING.id]
        assert not releases.all
        running.cancel()
