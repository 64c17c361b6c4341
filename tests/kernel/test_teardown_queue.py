# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is owed is done in the end, whatever goes wrong; what a container runs on is not owed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from typing import ClassVar

import pytest

from cni_invoker import Limits, NetworkConfigurationList, PluginTimeout, Runtime
from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.teardown.slots import TeardownSlots
from cnm_bridge.teardown.teardown import Teardown
from state import EndpointId, EndpointRecord, Phase, StateUnusable, Store
from tests.kernel.attachers import make_attachers
from tests.kernel.namespace import Namespace
from tests.kernel.records import endpoint, put

BOOT = "0c1f"
FIRST, SECOND = token_hex(32), token_hex(32)  # nobody else's: processes of the whole machine are looked at


class Slow(Teardown):
    """A tear down that counts how many there are at once."""

    at_once = 0
    most = 0

    async def __call__(self, record: EndpointRecord) -> None:
        """Take a while."""
        Slow.at_once += 1
        Slow.most = max(Slow.most, Slow.at_once)
        await asyncio.sleep(0.01)
        Slow.at_once -= 1
        await self._store.put_endpoint(replace(record, phase=Phase.DELETING))
        await self._store.remove_endpoint(record.id)


class Clumsy(Slow):
    """A tear down with a bug."""

    async def __call__(self, record: EndpointRecord) -> None:
        """Stumble over the first endpoint."""
        if record.id == FIRST:
            raise RuntimeError("a bug")
        await super().__call__(record)


class Sulky(Slow):
    """A teardown that fails until it is allowed to complete."""

    is_sulky = True

    async def __call__(self, record: EndpointRecord) -> None:
        """Fail."""
        if self.is_sulky:
            raise KernelError("sulk", "tear down", "no reason")
        await super().__call__(record)


class Stuck(Slow):
    """A tear down with a plugin that hangs: killed the first time, and at work for ever the second time."""

    killed: ClassVar[set[str]] = set()
    at_work: ClassVar[set[str]] = set()

    async def __call__(self, record: EndpointRecord) -> None:
        """Hang, with all endpoints but the second."""
        if record.id == SECOND:
            await super().__call__(record)
        elif record.id not in self.killed:
            self.killed.add(record.id)
            raise PluginTimeout(plugin="stuck", verb="DEL", path=Path("stuck"), timeout_s=60.0, started=True)
        else:
            self.at_work.add(record.id)
            await asyncio.Event().wait()


class Walled(Slow):
    """A tear down of an endpoint with a `firewall`."""

    async def __call__(self, record: EndpointRecord) -> None:
        """Look whether the address is claimed."""
        self._owners.find_owner(record, "firewall")
        await super().__call__(record)


class Docker:
    """Is busy until the test says that it is quiet; never about the second endpoint."""

    def __init__(self) -> None:
        self.quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Tell for how long it has wanted nothing but this."""
        return 60.0 if besides == SECOND else self.quiet_for


def make_queue(
    store: Store,
    kernel: Kernel,
    run_dir: Path,
    teardown: type[Teardown] = Teardown,
    *,
    docker: Docker | None = None,
    owners: AddressOwners | None = None,
    plugins: int = 2,
) -> TeardownQueue:
    """Make the object under test, without any plugin."""
    docker = docker or Docker()
    owners = owners or AddressOwners(store)
    places = TeardownSlots(plugins)
    undo = teardown(store, make_attachers(store, Runtime([], Limits()), kernel), owners, places)
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    return TeardownQueue(
        store=store,
        teardown=undo,
        in_use=InUseCheck(kernel, run_dir),
        locks=locks,
        owners=owners,
        places=places,
        boot_id=BOOT,
        orphaned_plugins=OrphanedPlugins(run_dir / "running"),
        quiet_s=docker.quiet_s,
    )


async def test_what_nobody_will_delete(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is given up at once, and torn down in the background; a bug with one, or a wait, is not another's."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id))
    teardowns = make_queue(store, kernel, tmp_path / "run", Clumsy)
    async with asyncio.timeout(20):
        for record in store.endpoints():
            await teardowns.abandon(record)
        assert {record.phase for record in store.endpoints()} == {Phase.DELETING}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(teardowns.run())
            await teardowns.wait_tried()
            running.cancel()
    assert [record.id for record in store.endpoints()] == [FIRST]
    assert set(teardowns.all) == {FIRST}


@asynccontextmanager
async def running(teardowns: TeardownQueue) -> AsyncIterator[None]:
    """Have tear downs done in the background."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(teardowns.run())
        yield
        task.cancel()


async def wait_gone(store: Store, endpoint_id: str) -> None:
    """Wait for the end of an endpoint without letting that be known."""
    while store.find_endpoint(EndpointId(endpoint_id)) is not None:  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that gives way to Docker for as long as it takes."""
    monkeypatch.setattr("cnm_bridge.scheduling.idle_gate._LONGEST_S", 3600.0)


@pytest.mark.usefixtures("patient")
async def test_what_docker_asks_for_gives_way_to_its_calls(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is on disk at once, and begins when Docker has been quiet for a moment, later than what does not wait."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))
    docker = Docker()
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, docker=docker)
    async with running(teardowns):
        await teardowns.request(EndpointId(FIRST))
        assert store.get_endpoint(EndpointId(FIRST)).phase is Phase.DELETING
        await teardowns.abandon(store.get_endpoint(EndpointId(SECOND)))
        await wait_gone(store, SECOND)
        assert teardowns.untried == teardowns.requested_ids == {FIRST}
        docker.quiet_for = 60.0
        await wait_gone(store, FIRST)
        await teardowns.wait_tried()
    assert (teardowns.all, teardowns.requested_ids) == ({}, frozenset())


@pytest.mark.usefixtures("patient")
async def test_what_somebody_waits_for(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It begins at once, though Docker is not quiet; so does that of which alone Docker wants something."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    async with running(teardowns):
        for endpoint_id in (FIRST, SECOND):
            await teardowns.request(EndpointId(endpoint_id))
        await wait_gone(store, SECOND)  # which would end later than the first, if both began at once
        assert [record.id for record in store.endpoints()] == [FIRST]
        await teardowns.wait_tried([EndpointId(FIRST)])
        assert store.endpoints() == ()


async def test_docker_deletes_what_has_failed(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again at once, however long the pause is yet."""
    monkeypatch.setattr("cnm_bridge.teardown.queue._FIRST_PAUSE_S", 3600.0)
    await put(store, endpoint(SECOND, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Sulky)
    async with running(teardowns):
        await teardowns.request(EndpointId(SECOND))
        await teardowns.wait_tried()
        assert "sulk" in str(teardowns.all[EndpointId(SECOND)].error)
        monkeypatch.setattr(Sulky, "is_sulky", False)
        await teardowns.request(EndpointId(SECOND))
        await wait_gone(store, SECOND)


async def test_what_cannot_be_stored(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker is told, reconcile is not; it is torn down all the same, and gives way to nobody."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))

    async def refuse(record: EndpointRecord) -> None:
        raise StateUnusable(tmp_path, "write", f"no space for {record.id}")

    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    with monkeypatch.context() as full:
        full.setattr(store, "put_endpoint", refuse)
        with pytest.raises(StateUnusable, match="no space"):
            await teardowns.request(EndpointId(FIRST))
        await teardowns.abandon(store.get_endpoint(EndpointId(SECOND)))
    assert teardowns.untried == {FIRST, SECOND}
    assert teardowns.requested_ids == frozenset()
    async with running(teardowns):
        await teardowns.wait_tried()
    assert store.endpoints() == ()


@pytest.mark.usefixtures("patient")
async def test_what_docker_did_not_ask_for(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It gives way to nobody: Docker may have started the container again, and need what it has."""
    await put(store, endpoint(FIRST, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    async with running(teardowns):
        await teardowns.abandon(store.get_endpoint(EndpointId(FIRST)))
        assert teardowns.requested_ids == frozenset()
        await wait_gone(store, FIRST)


async def test_an_endpoint_that_nobody_knows(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is gone already, or never was."""
    teardowns = make_queue(store, kernel, tmp_path / "run")
    await teardowns.request(EndpointId(FIRST))
    assert (teardowns.all, teardowns.requested_ids) == ({}, frozenset())


async def test_what_has_changed_since(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Docker has joined it after all: it is not given up."""
    await put(store, endpoint(FIRST, Phase.READY))
    (found,) = store.endpoints()
    await store.put_endpoint(replace(found, phase=Phase.JOINED))
    teardowns = make_queue(store, kernel, tmp_path / "run")
    await teardowns.abandon(found)
    assert (teardowns.all, store.get_endpoint(EndpointId(FIRST)).phase) == ({}, Phase.JOINED)


async def test_a_record_that_was_not_the_latest(
    store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path
) -> None:
    """A PENDING endpoint on which a container runs becomes joined; the teardowns of others are pending."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.PENDING, boot_id=BOOT))
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname cni-bridge-{FIRST}")
    teardowns = make_queue(store, kernel, tmp_path / "run")
    with sandbox.living():
        assert await teardowns.add_unfinished() == 1
    assert set(teardowns.all) == {SECOND}
    assert store.get_endpoint(EndpointId(FIRST)).phase is Phase.JOINED
    sandbox.ip("link del marked")


async def test_what_is_given_up(store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """Docker has asked for the end of it, wherever its link is; and nothing outlives a boot."""
    await put(store, endpoint(FIRST, boot_id=BOOT))
    await store.put_endpoint(endpoint(FIRST, Phase.DELETING, boot_id=BOOT))
    await put(store, endpoint(SECOND, boot_id="an earlier one"))
    teardowns = make_queue(store, kernel, tmp_path / "run")
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname cni-bridge-{FIRST}")
    with sandbox.living():
        assert await teardowns.add_unfinished() == 2
    sandbox.ip("link del marked")


async def test_plugins_that_hang_again(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """However many they are, others are torn down meanwhile: those have hung before."""
    for number in range(40):
        await put(store, endpoint(f"{number:064x}", Phase.READY))
    await put(store, endpoint(SECOND, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Stuck, plugins=10)
    most = 5  # half of the places
    async with running(teardowns):
        for record in store.endpoints():
            if record.id != SECOND:
                await teardowns.abandon(record)
        while len(Stuck.at_work) < most:  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.01)
        await teardowns.abandon(store.get_endpoint(EndpointId(SECOND)))
        await wait_gone(store, SECOND)
        assert len(Stuck.at_work) == most


async def test_one_that_was_put_off(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new endpoint claimed its address: as soon as that one is made, or was refused, it is torn down."""
    monkeypatch.setattr("cnm_bridge.teardown.queue._FIRST_PAUSE_S", 3600.0)
    walled = endpoint(FIRST, plugins=[{"type": "firewall"}])
    await put(store, replace(walled, addresses=("10.1.0.2",)))
    owners = AddressOwners(store)
    teardowns = make_queue(store, kernel, tmp_path / "run", Walled, owners=owners)
    configuration = NetworkConfigurationList.from_document(walled.attachment.configuration)
    async with running(teardowns):
        with owners.claim(EndpointId(SECOND), [ip_address("10.1.0.2")], configuration):
            await teardowns.abandon(store.get_endpoint(EndpointId(FIRST)))
            await teardowns.wait_tried([EndpointId(FIRST)])
            error = teardowns.all[EndpointId(FIRST)].error
            assert error is not None
            assert "plugin firewall waits for container" in error
        await wait_gone(store, FIRST)


@pytest.mark.parametrize(("plugins", "most"), [(1, 16), (20, 40)])
async def test_many(store: Store, kernel: Kernel, tmp_path: Path, plugins: int, most: int) -> None:
    """After a reboot all are pending; not all are torn down at once: sixteen, or two for each plugin that may run."""
    Slow.most = 0
    for number in range(most + 20):
        await put(store, endpoint(f"{number:064x}", Phase.PENDING))
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, plugins=plugins)
    async with asyncio.TaskGroup() as tasks:
        assert await teardowns.add_unfinished() == most + 20
        running = tasks.create_task(teardowns.run())
        await teardowns.wait_tried()
        running.cancel()
    assert store.endpoints() == ()
    assert Slow.most == most
