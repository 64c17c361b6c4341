# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a key has is kept for its time after its container has ended, whatever was lost, and released then."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_state import HoldId, HoldPhase, HoldRecord, Phase, ReservationRecord, StateUnusable
from cni_bridge_state.address_store import AddressStore
from cnm_bridge.driver.ipam.hold_settlements import HoldSettlements
from tests.records import NETWORK
from tests.unit.cnm_bridge.core.planning.test_hold import plan
from tests.unit.cnm_bridge.driver.ipam.hold_scene import ENDPOINTS, Plugins, Scene, refusal

HOUR_S: Final = 3600


async def test_an_endpoint_whose_record_is_made_again(scene: Scene) -> None:
    """The time of its key counts from its end, not from the start of the daemon."""
    created = await scene.create(plan(sticky_for="1h"), until=Phase.JOINED)
    record = scene.store.get_endpoint(created)
    await scene.store.put_endpoint(replace(record, phase=Phase.DELETING))
    await scene.store.remove_endpoint(created)  # it was damaged
    scene.settlements = HoldSettlements(store=scene.store, reservations=scene.holds.reservations)
    scene.settlements.clock = lambda: scene.now
    await scene.settle()
    assert scene.hold.expires_at == scene.now + HOUR_S
    scene.now += 2 * HOUR_S
    await scene.store.put_found_endpoint(record)
    scene.settlements.note_round()
    await scene.settle()
    assert not scene.hold.expires_at
    await scene.remove(created)
    assert scene.hold.expires_at == scene.now + HOUR_S


async def test_a_join_that_was_not_stored(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk was full at Join, and the container ends before the next round, its new key keeps what it has."""
    created = await scene.create(plan())
    put_hold = AddressStore.put_hold

    async def put_not(_: AddressStore, _record: HoldRecord) -> None:
        raise StateUnusable(Path("/var/lib/cni-bridge"), "write", "No space left on device")

    monkeypatch.setattr(AddressStore, "put_hold", put_not)
    await scene.join(created)
    monkeypatch.setattr(AddressStore, "put_hold", put_hold)
    await scene.remove(created)
    assert (scene.hold.phase, scene.hold.keep_s, scene.hold.expires_at) == (HoldPhase.HELD, None, None)


async def test_a_delete_that_hangs(scene: Scene) -> None:
    """What is due for other keys is done meanwhile."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    other = replace(scene.hold, id=HoldId("5" * 64), key="db", holder=ENDPOINTS[-1])
    scene.plugins.hangs = True
    await scene.store.ipam.put_hold(replace(scene.hold, phase=HoldPhase.RELEASING))
    async with running(scene):
        await scene.store.ipam.put_hold(replace(other, phase=HoldPhase.PENDING))
        await scene.store.ipam.put_hold(other)
        scene.settlements.note_endpoint_gone(ENDPOINTS[-1])
        await wait_for(lambda: scene.store.ipam.find_hold_of(ENDPOINTS[-1]) is None)
        assert len(scene.store.ipam.holds()) == 2


async def test_a_delete_that_hangs_beside_its_key(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with the key starts meanwhile, if the key has its addresses under another ID."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    key, left = scene.hold, replace(scene.hold, id=HoldId("5" * 64))
    for phase in (HoldPhase.PENDING, HoldPhase.RELEASING):
        await scene.store.ipam.put_hold(replace(left, phase=phase))
    begun = asyncio.Event()

    async def hang(_: Plugins, record: HoldRecord, _reservation: ReservationRecord) -> None:
        assert record.id == left.id
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Plugins, "delete", hang)
    async with running(scene):
        await begun.wait()
        created = await scene.create(plan(), until=Phase.JOINED)
    held = scene.store.ipam.find_hold_of(created)
    assert held is not None
    assert held.id == key.id


async def test_what_becomes_due_during_a_delete_that_hangs(scene: Scene) -> None:
    """It is done when the DEL has ended."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    scene.plugins.hangs = True
    await scene.store.ipam.put_hold(replace(scene.hold, phase=HoldPhase.PENDING))  # it is to be reserved again
    async with running(scene):
        await scene.store.remove_network(NETWORK)
        scene.settlements.note_network_gone(NETWORK)
        await asyncio.sleep(0)
        scene.plugins.resumed.set()
        await wait_for(lambda: not scene.store.ipam.holds())
    assert scene.plugins.assigned is None


async def test_deletes_that_fail_at_the_same_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes due meanwhile repeats each once; the end of one does not repeat the other, which would never end."""
    begun: list[HoldId] = []

    async def fail(_: Plugins, record: HoldRecord, _reservation: ReservationRecord) -> None:
        begun.append(record.id)
        await asyncio.sleep(0.02 if record.key == "web" else 0.03)
        raise refusal("etcd does not answer")

    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    monkeypatch.setattr(Plugins, "delete", fail)
    for left in (scene.hold, replace(scene.hold, id=HoldId("5" * 64), key="db")):
        for phase in (HoldPhase.PENDING, HoldPhase.RELEASING):
            await scene.store.ipam.put_hold(replace(left, phase=phase))
    async with running(scene):
        scene.settlements.request()
        await wait_for(lambda: len(begun) == 4)
        await asyncio.sleep(0.2)
    assert len(begun) == 4


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    """Settle in the background what is due."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(scene.settlements.run())
        await asyncio.sleep(0.01)
        yield
        task.cancel()


async def wait_for(is_true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110 the store has no event for it
            await asyncio.sleep(0.01)
