# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a key has changes only by containers that were attached, and is never lost by an error."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import get_objects
from cni_bridge_state import (
    HoldPhase,
    HoldRecord,
    NetworkId,
    Phase,
    StateUnusable,
)
from cni_bridge_state.address_store import AddressStore
from cni_invoker import CniError, PluginFailed
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.ipam import hold_reservations
from cnm_bridge.driver.ipam import holds as module
from tests.records import NETWORK
from tests.unit.cnm_bridge.core.planning.test_hold import plan
from tests.unit.cnm_bridge.driver.ipam.hold_scene import ELSEWHERE, WIDER, Scene, refusal

OTHER_MAC: Final = "02:00:00:00:00:0a"


@pytest.mark.parametrize("refuses_delete", [False, True])
async def test_a_refused_address_is_kept(scene: Scene, *, refuses_delete: bool) -> None:
    """If the plugin refuses the address since its section was changed, the key keeps it; the error says what to do."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.refuses = lambda document: document["ipam"] == WIDER
    scene.plugins.delete_error = refusal("there is no directory") if refuses_delete else None
    with pytest.raises(Refused) as refused:
        await scene.create(plan(WIDER))
    for part in ("key web has 10.1.2.3/24", "CNI configuration blue", "it is excluded", "reserved as before"):
        assert part in str(refused.value)
    assert "`cni-bridge release --sticky web`" in str(refused.value)
    assert scene.plugins.assigned == before.id
    assert (scene.hold.phase, scene.hold.addresses, scene.hold.mac) == (HoldPhase.HELD, before.addresses, before.mac)
    await scene.create(plan(), until=Phase.JOINED)


async def test_a_plugin_that_is_missing(scene: Scene) -> None:
    """If the changed section names a plugin that is not installed, the key keeps its address."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.missing = lambda document: document["ipam"] == WIDER
    with pytest.raises(
        Refused, match=r'key web has 10.1.2.3/24.*failed to find plugin "host-local".*reserved as before'
    ):
        await scene.create(plan(WIDER))
    assert (scene.hold.phase, scene.plugins.assigned) == (HoldPhase.HELD, before.id)
    await scene.create(plan(), until=Phase.JOINED)


async def test_a_changed_section_takes_effect(scene: Scene) -> None:
    """The address is reserved with the new section, under the same ID."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    await scene.create(plan(WIDER), until=Phase.JOINED)
    (document,) = get_objects(scene.hold.reservation.configuration, "plugins")
    assert document["ipam"] == WIDER
    assert (scene.hold.id, scene.hold.mac, scene.plugins.assigned) == (before.id, before.mac, before.id)


async def test_a_lost_reservation(scene: Scene) -> None:
    """What the plugin has lost is reserved again; an address that another container has is not given twice."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    scene.plugins.lose()
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    assert scene.plugins.assigned == scene.hold.id
    scene.plugins.assigned = "another container"
    with pytest.raises(Refused, match=r"key web has 10.1.2.3/24.*refuses to reserve that again.*has been allocated"):
        await scene.create(plan())


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_plugin_that_cannot_say_what_it_has(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    """A CHECK that has no answer changes nothing: the store of the plugin may be away, or its lock be held."""
    monkeypatch.setattr(hold_reservations, "_CHECK_LIMIT_S", 0.05)
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    scene.plugins.check_code = 100
    scene.plugins.hangs = hangs
    scene.plugins.refuses = lambda _: True
    await scene.create(plan(), until=Phase.JOINED)


@pytest.mark.parametrize("is_taken", [False, True])
async def test_an_interrupted_change_is_repeated(scene: Scene, *, is_taken: bool) -> None:
    """What is not reserved again is not forgotten, also if another container has got the address meanwhile."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.error = CniError("it timed out")
    with pytest.raises(CniError, match="it timed out"):
        await scene.create(plan(WIDER))
    scene.plugins.error = None
    if is_taken:
        scene.plugins.assigned = "another container"
        await scene.settle()
        assert scene.hold.phase is HoldPhase.PENDING
        with pytest.raises(Refused, match=r"key web has 10.1.2.3/24.*has been allocated.*release --sticky web"):
            await scene.create(plan(WIDER))
        scene.plugins.assigned = None
    await scene.settle()
    assert (scene.hold.phase, scene.hold.addresses) == (HoldPhase.HELD, before.addresses)
    assert scene.plugins.assigned == before.id


@pytest.mark.parametrize("error", [refusal("there is no directory"), CniError("it timed out")])
async def test_an_interrupted_change_that_cannot_be_undone(scene: Scene, error: CniError) -> None:
    """The key continues with the section that the list has now; what it may have with the other one is released."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.error = CniError("it timed out")
    with pytest.raises(CniError, match="it timed out"):
        await scene.create(plan(ELSEWHERE))
    scene.plugins.error, scene.plugins.delete_error = None, error
    scene.plugins.refuses = lambda document: document["ipam"] == ELSEWHERE
    created = await scene.create(plan(), until=Phase.JOINED)
    held = scene.store.ipam.find_hold_of(created)
    assert held is not None
    assert (held.phase, held.addresses, held.mac) == (HoldPhase.HELD, before.addresses, before.mac)
    await scene.settle()
    assert scene.plugins.owners == {"": held.id, "/elsewhere": before.id}
    scene.plugins.delete_error = None
    await scene.settle()
    assert scene.plugins.owners == {"": held.id, "/elsewhere": None}
    assert scene.hold == held


async def test_a_refused_address_whose_delete_has_no_answer(scene: Scene) -> None:
    """The address is reserved as before at once; the DEL is repeated."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.refuses = lambda document: document["ipam"] == ELSEWHERE
    scene.plugins.delete_error = CniError("it timed out")
    with pytest.raises(Refused, match=r"it is excluded.*; they are reserved as before"):
        await scene.create(plan(ELSEWHERE))
    held, left = sorted(scene.store.ipam.holds(), key=lambda one: one.phase)
    assert (held.phase, held.addresses, left.phase) == (HoldPhase.HELD, before.addresses, HoldPhase.RELEASING)
    assert scene.plugins.assigned == held.id
    scene.plugins.delete_error = None
    await scene.settle()
    assert scene.hold == held


async def test_attempts_while_a_delete_has_no_answer(scene: Scene) -> None:
    """However often a container is started, one DEL is pending, and the key has its address with the former section."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    scene.plugins.refuses = lambda document: document["ipam"] == ELSEWHERE
    scene.plugins.delete_error = CniError("it timed out")
    with pytest.raises(Refused, match="they are reserved as before"):
        await scene.create(plan(ELSEWHERE))
    before = scene.store.ipam.holds()
    for _ in range(3):
        with pytest.raises(Refused, match="has not released what it may have reserved in an earlier attempt"):
            await scene.create(plan(ELSEWHERE))
    assert [replace(one, holder=None) for one in scene.store.ipam.holds()] == [
        replace(one, holder=None) for one in before
    ]
    await scene.create(plan(), until=Phase.JOINED)


@pytest.mark.parametrize("until", [Phase.PENDING, Phase.READY])
async def test_a_container_that_never_ran_changes_nothing(scene: Scene, until: Phase) -> None:
    """Its MAC and its time count if it is attached; neither if it fails at CreateEndpoint nor at Join."""
    await scene.remove(await scene.create(plan(sticky_for="1h"), until=Phase.JOINED))
    before = scene.hold
    assert before.expires_at == scene.now + 3600
    scene.now += 60
    wanted = plan(mac=OTHER_MAC, sticky_for="7d")
    await scene.fail(wanted, until)
    assert scene.hold == before
    await scene.create(wanted, until=Phase.JOINED)
    assert (scene.hold.mac, scene.hold.keep_s, scene.hold.expires_at) == (OTHER_MAC, 7 * 86400, None)


@pytest.mark.parametrize("until", [Phase.PENDING, Phase.READY])
async def test_a_new_key_whose_container_never_ran(scene: Scene, until: Phase) -> None:
    """It has nothing, also if the endpoint was created and Join failed."""
    await scene.fail(plan(), until)
    assert scene.store.ipam.holds() == ()
    assert scene.plugins.assigned is None


async def test_a_join_that_an_earlier_run_has_not_noted(scene: Scene) -> None:
    """If the daemon ended between Join and the change of the hold, the next run makes it."""
    created = await scene.create(plan(mac=OTHER_MAC))
    await scene.store.put_endpoint(replace(scene.store.get_endpoint(created), phase=Phase.JOINED))
    await scene.settle()
    assert (scene.hold.mac, scene.hold.keep_s, scene.hold.holder) == (OTHER_MAC, None, created)
    await scene.remove(created)
    assert scene.hold.holder is None


async def test_an_endpoint_that_goes_while_its_join_is_noted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key keeps what it has, because its container was attached."""
    created = await scene.create(plan())
    await scene.store.put_endpoint(replace(scene.store.get_endpoint(created), phase=Phase.JOINED))
    put_hold = AddressStore.put_hold

    async def put_slowly(self: AddressStore, record: HoldRecord) -> None:
        await put_hold(self, record)
        monkeypatch.setattr(AddressStore, "put_hold", put_hold)
        await scene.store.put_endpoint(replace(scene.store.get_endpoint(created), phase=Phase.DELETING))
        await scene.store.remove_endpoint(created)
        scene.settlements.note_endpoint_gone(created)

    monkeypatch.setattr(AddressStore, "put_hold", put_slowly)
    await scene.settle()
    assert (scene.hold.holder, scene.hold.keep_s, scene.hold.expires_at) == (None, None, None)


async def test_a_full_disk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reservation cannot be stored, it is undone, and the error says why."""
    put_hold = AddressStore.put_hold

    async def put_pending(self: AddressStore, record: HoldRecord) -> None:
        if record.phase is HoldPhase.HELD:
            raise StateUnusable(Path("/var/lib/cni-bridge"), "write", "No space left on device")
        await put_hold(self, record)

    monkeypatch.setattr(AddressStore, "put_hold", put_pending)
    with pytest.raises(StateUnusable, match="cannot write the state in /var/lib/cni-bridge: No space left"):
        await scene.create(plan())
    assert scene.plugins.assigned is None
    assert scene.store.ipam.holds() == ()


async def test_an_undo_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call ends with the plugin's error after a short time; the undo is repeated later."""
    monkeypatch.setattr(module, "UNDO_LIMIT_S", 0.05)
    scene.plugins.error = refusal("no address is left")
    scene.plugins.hangs = True
    async with asyncio.timeout(5):
        with pytest.raises(PluginFailed, match="no address is left"):
            await scene.create(plan())
    assert scene.hold.phase is HoldPhase.PENDING
    scene.plugins.hangs = False
    await scene.settle()
    assert scene.store.ipam.holds() == ()
    assert scene.plugins.assigned is None


async def test_waits_end_at_the_deadline(scene: Scene) -> None:
    """A call waits neither for another call with the key nor for a release longer than until its deadline."""
    wanted, soon = plan(), asyncio.get_running_loop().time() + 0.05
    async with asyncio.timeout(5):
        async with scene.holds.holding(scene.request(wanted), wanted, soon):
            with pytest.raises(Refused, match="key web is not free yet: another container with it is being created"):
                async with scene.holds.holding(scene.request(wanted), wanted, soon):
                    pass
        scene.plugins.hangs = True
        await scene.store.ipam.put_hold(replace(scene.hold, phase=HoldPhase.RELEASING, holder=None, change=None))
        soon = asyncio.get_running_loop().time() + 0.05
        with pytest.raises(Refused, match=r"has not released what it had: its DEL has not ended"):
            async with scene.holds.holding(scene.request(wanted), wanted, soon):
                pass


async def test_a_time_that_is_over_before_a_change(scene: Scene) -> None:
    """The error says that nothing has been changed, unless the address is being reserved again."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before, begun = scene.hold, asyncio.get_running_loop().time()
    scene.plugins.hangs = True
    for wanted, deadline in ((plan(WIDER), begun), (plan(), begun + 0.05)):
        with pytest.raises(Refused, match=r"key web has .*time was over .*nothing has been changed; try again$"):
            async with scene.holds.holding(scene.request(wanted), wanted, deadline):
                pass
        assert scene.hold == before
    wanted = plan(WIDER)
    with pytest.raises(Refused, match=r"key web has .*takes long to reserve them again; cni-bridge repeats that"):
        async with scene.holds.holding(scene.request(wanted), wanted, asyncio.get_running_loop().time() + 1):
            pass  # what is stored before DEL may take a while


async def test_a_network_that_is_made_again(scene: Scene) -> None:
    """A network that was gone and is there again keeps its holds when their containers go."""
    created = await scene.create(plan(), until=Phase.JOINED)
    network = scene.store.find_network(NetworkId(NETWORK))
    assert network is not None
    await scene.store.remove_network(NETWORK)
    scene.settlements.note_network_gone(NETWORK)
    await scene.settle()
    await scene.store.put_network(network)
    await scene.remove(created)
    assert scene.hold.phase is HoldPhase.HELD
