# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is owed is done in the end, whatever goes wrong; what a container runs on is not owed."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_invoker import NetworkConfigurationList
from cnm_bridge.kernel import Kernel
from cnm_bridge.teardown.address_owners import AddressOwners
from state import EndpointId, EndpointRecord, Phase, StateUnusable, Store
from tests.kernel.records import endpoint, put
from tests.kernel.teardown_queue import (
    FIRST,
    SECOND,
    Clumsy,
    Docker,
    Slow,
    Stuck,
    Sulky,
    Walled,
    make_queue,
    running,
    wait_gone,
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
