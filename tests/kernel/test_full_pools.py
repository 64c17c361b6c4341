# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests for an address of a pool whose addresses are all assigned, and releases of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Final, cast

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressPhase, PoolId
from cni_bridge_state.store import Store
from cni_invoker import CniError, ConfigurationDirectories, Execution, Runtime, Verb
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.ipam.wire import ReleaseAddress, RequestAddress
from cnm_bridge.driver.ipam import service as requests
from cnm_bridge.driver.ipam.releases import PluginRuns, Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.real_plugins import LIMITS
from tests.plugins import FakePlugins
from tests.records import address_pool, address_record, list_of

POOL: Final = PoolId("lan,10.1.2.0/24,,5f0c81aa")
HIGH: Final = PoolId("lan,10.1.2.0/24,10.1.2.128/25,5f0c81ab")
ANY: Final = RequestAddress(pool=POOL, address=None)
ADDRESSES: Final = [IPv4Address("10.1.2.5"), IPv4Address("10.1.2.6")]
LIMIT_S: Final = 20.0
"""The limit of a test; the calls wait longer."""


class TwoAddresses(FakePlugins):
    """A plugin with two addresses; ADD and DEL hang when they have one of them until it goes on."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        gate = str(self._gate("{address}"))
        self.behaviour: JsonObject = {"addresses": [str(one) for one in ADDRESSES], "wait_for": gate}
        self.install("two", ADD=self.behaviour, DEL=self.behaviour)
        self.refused = asyncio.Event()

    def go_on(self, address: IPv4Address) -> None:
        """Let the executions that have an address go on."""
        self._gate(address).touch()

    def hang(self, address: IPv4Address) -> None:
        """Let further executions hang when they have an address."""
        self._gate(address).unlink()

    def is_assigned(self, address: IPv4Address) -> bool:
        """Return whether a container has an address."""
        return (self.directory / f"two.{address}").is_symlink()

    def on_execution(self, execution: Execution) -> None:
        """Note that an ADD was refused."""
        if execution.verb is Verb.ADD and execution.outcome == "PluginFailed":
            self.refused.set()

    def _gate(self, address: IPv4Address | str) -> Path:
        return self.directory / f"gate-{address}"


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoAddresses:
    """The plugin; calls wait for longer than a test may take."""
    monkeypatch.setattr(requests, "_PATIENCE_S", 10 * LIMIT_S)
    return TwoAddresses(tmp_path / "bin")


@pytest.fixture(name="service")
async def serve(tmp_path: Path, plugins: TwoAddresses, store: Store, kernel: Kernel) -> AsyncIterator[IpamService]:
    """The service, whose pool has given both addresses to containers."""
    ipam = {"type": "two", "subnet": "10.1.2.0/24"}
    (tmp_path / "lan.ipam").write_text(json.dumps({"cniVersion": "1.0.0", "name": "lan", "ipam": ipam}))
    runtime = Runtime([plugins.directory], LIMITS, observer=plugins.on_execution)
    runs = PluginRuns(runtime, kernel, tmp_path)
    releases = make_releases(store, runs)
    service = IpamService(
        store=store,
        sections=Sections(ConfigurationDirectories(tmp_path)),
        runtime=runtime,
        plugins=runs,
        releases=releases,
    )
    for pool, part in ((POOL, None), (HIGH, ip_network("10.1.2.128/25"))):
        await store.ipam.pools.put(address_pool(pool, sub_pool=part))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(releases.run())
        for address in ADDRESSES:
            plugins.go_on(address)
            await service.request_address(ANY)
            plugins.hang(address)
        try:
            yield service
        finally:
            running.cancel()
    await kernel.remove_staging(runs.netns)


def make_releases(store: Store, plugins: PluginRuns) -> Releases:
    """Make the releases of addresses that no endpoint has, so that no teardown is asked."""
    return Releases(store, plugins, cast("TeardownQueue", None), KeyedLocks())


@pytest.mark.parametrize("is_late", [False, True])
async def test_one_address_is_enough(service: IpamService, plugins: TwoAddresses, *, is_late: bool) -> None:
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
        plugins.go_on(leaving)
        if is_late:
            await release(service, leaving)
        assert (await requested).ip == leaving
        assert plugins.is_assigned(hanging)
        plugins.go_on(hanging)


async def test_no_release_helps(service: IpamService, plugins: TwoAddresses) -> None:
    """If all pending releases fail, the plugin's own refusal is the answer."""
    plugins.install("two", ADD=plugins.behaviour, DEL={"error": {"code": 5, "msg": "the disk is full"}})
    await asyncio.gather(*(release(service, address) for address in ADDRESSES))
    with pytest.raises(CniError, match="no address is available"):
        await service.request_address(ANY)


async def test_another_pool_of_the_section(service: IpamService, plugins: TwoAddresses) -> None:
    """A release that hangs is not waited for by a pool that its address is not of."""
    async with asyncio.timeout(LIMIT_S):
        await release(service, ADDRESSES[0])
        with pytest.raises(CniError, match="no address is available"):
            await service.request_address(replace(ANY, pool=HIGH))
        assert plugins.is_assigned(ADDRESSES[0])
        plugins.go_on(ADDRESSES[0])


async def test_what_the_previous_run_left(service: IpamService, plugins: TwoAddresses) -> None:
    """A reservation that the previous run was killed in may have an address; its release is waited for."""
    (record,) = (one for one in service.store.ipam.addresses() if one.address and one.address.ip == ADDRESSES[1])
    await service.store.ipam.put_address(replace(record, phase=AddressPhase.RELEASING))
    await service.store.ipam.remove_address(record.id)
    await service.store.ipam.put_address(replace(record, phase=AddressPhase.PENDING, address=None))
    assert service.releases.add_unfinished() == 1
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        requested = tasks.create_task(service.request_address(ANY))
        await plugins.refused.wait()
        await asyncio.sleep(0.1)
        assert not requested.done()
        plugins.go_on(ADDRESSES[1])
        assert (await requested).ip == ADDRESSES[1]


async def test_an_add_that_was_stopped(
    service: IpamService, plugins: TwoAddresses, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ADD that its time limit stopped may have assigned an address: others wait for its undo."""
    monkeypatch.setattr(requests, "_UNDO_S", 0.05)
    plugins.go_on(ADDRESSES[0])
    await release(service, ADDRESSES[0])
    await service.releases.wait_tried(list(service.releases.all), LIMIT_S)
    assert not plugins.is_assigned(ADDRESSES[0])
    plugins.hang(ADDRESSES[0])
    limit_s = 0.1
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        while not plugins.is_assigned(ADDRESSES[0]):  # the limit may be over before the plugin has assigned one
            limit_s *= 2
            hasty = PluginRuns(Runtime([plugins.directory], replace(LIMITS, add_s=limit_s)), kernel, tmp_path)
            with pytest.raises(PluginTimeout):
                await replace(service, plugins=hasty).request_address(ANY)
        requested = tasks.create_task(service.request_address(ANY))
        await plugins.refused.wait()
        await asyncio.sleep(0.1)
        assert not requested.done()
        plugins.go_on(ADDRESSES[0])
        assert (await requested).ip == ADDRESSES[0]


async def release(service: IpamService, address: IPv4Address) -> None:
    """Release an address as Docker does, which does not wait for the plugin."""
    await service.release_address(ReleaseAddress(pool=POOL, address=address))


@pytest.mark.parametrize("count", [1, 2])
async def test_a_call_waits_for_the_next_attempt(store: Store, kernel: Kernel, tmp_path: Path, count: int) -> None:
    """After a failed attempt the address is free when the call goes on, if the namespace can be made then."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("two")
    configuration = list_of({"type": "two"}).document
    pending = address_record(pool=POOL)
    assert pending.reservation is not None
    pending = replace(pending, reservation=replace(pending.reservation, configuration=configuration))
    await store.ipam.put_address(pending)
    run_dir = tmp_path / "run"
    run_dir.touch()  # no namespace can be made below a file
    releases = make_releases(store, PluginRuns(Runtime([plugins.directory], LIMITS), kernel, run_dir))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(releases.run())
        await releases.wait_tried([pending.id], LIMIT_S)
        assert "make namespace" in str(releases.all[pending.id].error)
        run_dir.unlink()
        await asyncio.gather(*(releases.wait_tried([pending.id], LIMIT_S) for _ in range(count)))
        (command,) = plugins.commands
        assert (command.verb, command.environment["CNI_CONTAINERID"]) == ("DEL", pending.id)
        assert not releases.all
        running.cancel()
