# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a key has changes only by containers that were attached, and is never lost by an error."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

import pytest

from cni_bridge_spec import JsonObject, get_objects
from cni_bridge_state import (
    EndpointId,
    HoldPhase,
    HoldRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    ReservationRecord,
    StateUnusable,
)
from cni_bridge_state.address_store import AddressStore
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed, Result
from cni_invoker.errors import PluginNotFound
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.ipam import hold_reservations
from cnm_bridge.driver.ipam import holds as module
from cnm_bridge.driver.ipam.hold_reservations import HoldReservations
from cnm_bridge.driver.ipam.hold_settlements import HoldSettlements
from cnm_bridge.driver.ipam.holds import Holds
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.driver.teardown.contention import wait_deadline
from cnm_bridge.driver.teardown.evictions import Evictions
from tests.records import NETWORK, endpoint, put
from tests.unit.cnm_bridge.core.planning.test_hold import SUBNET, plan

ADDRESS: Final = "10.1.2.3"
OTHER_MAC: Final = "02:00:00:00:00:0a"
WIDER: Final[JsonObject] = {**SUBNET, "routes": [{"dst": "192.0.2.0/24"}]}
"""The section after a change; the ranges have the address."""
ENDPOINTS: Final = [EndpointId(digit * 64) for digit in "defabc"]


def refusal(text: str, code: int = 1) -> PluginFailed:
    """Return the error of a plugin that refuses."""
    where = {"plugin": "host-local", "verb": "ADD", "path": Path("/opt/cni/bin/host-local")}
    return PluginFailed(**where, code=code, msg=text, exit_status=1, signal=None, duration_s=0.01)  # type: ignore[arg-type]


@dataclass(slots=True)
class Plugins:
    """Stands in for the runs of an IPAM plugin with one address.

    Attributes:
        assigned: Whose it is.
        refuses: Whether the plugin refuses it for a section.
        refuses_delete: Whether it refuses a DEL with that section, too.
        missing: Whether the plugin of a section is not installed.
        error: What an ADD fails with after it has reserved the address.
        hangs: Whether DEL and CHECK hang.
        check_code: The code with which CHECK always fails.
    """

    netns: Path = Path("/run/netns/1")
    assigned: str | None = None
    refuses: Callable[[JsonObject], bool] = lambda _: False
    refuses_delete: bool = False
    missing: Callable[[JsonObject], bool] = lambda _: False
    error: CniError | None = None
    hangs: bool = False
    check_code: int | None = None

    async def add(self, record: HoldRecord, reservation: ReservationRecord) -> Result:
        """Reserve the address."""
        (document,) = get_objects(reservation.configuration, "plugins")
        self._find(document)
        if self.assigned is not None or self.refuses(document):
            raise refusal("it is excluded" if self.assigned is None else f"{ADDRESS} has been allocated")
        self.assigned = record.id
        if self.error is not None:
            raise self.error
        return Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": f"{ADDRESS}/24"}]})

    async def delete(self, record: HoldRecord, reservation: ReservationRecord) -> None:
        """Release the address."""
        (document,) = get_objects(reservation.configuration, "plugins")
        self._find(document)
        if self.refuses_delete and self.refuses(document):
            raise refusal("there is no directory")
        if self.hangs:
            await asyncio.Event().wait()
        if self.assigned == record.id:
            self.assigned = None

    async def check(self, record: HoldRecord, _: ReservationRecord) -> None:
        """Look for the reservation."""
        if self.hangs:
            await asyncio.Event().wait()
        if self.check_code is not None:
            raise refusal("there is no answer", self.check_code)
        if self.assigned != record.id:
            raise refusal("Failed to find address added by container", 999)

    def _find(self, document: JsonObject) -> None:
        if self.missing(document):
            raise PluginNotFound(plugin="host-local", directories=[Path("/opt/cni/bin")])

    def lose(self) -> None:
        """Lose the reservation."""
        self.assigned = None

    async def tidy(self, _: Callable[[], bool]) -> None:
        """There is no namespace."""


class NoOther:
    """Stands in for contention: no other endpoint leaves."""

    def __init__(self, _evictions: object, _network: str, deadline: float, *_: object) -> None:
        self.deadline = deadline

    def note_leaving(self) -> None:
        """None leaves."""

    async def wait_or_raise(self, exc: PluginFailed) -> None:
        """There is nothing to wait for."""
        raise exc

    async def wait_for_holder(self, _: EndpointId, what: str, remedy: str) -> None:
        """It does not go."""
        raise Refused(f"another endpoint has the same {what}; {remedy}")


@dataclass(slots=True)
class Scene:
    """The holds of a network, and its endpoints."""

    store: Store
    plugins: Plugins
    holds: Holds
    settlements: HoldSettlements
    now: float = 1000.0
    numbers: list[EndpointId] = field(default_factory=lambda: list(ENDPOINTS))

    async def create(self, wanted: Plan, *, until: Phase = Phase.READY) -> EndpointId:
        """Create an endpoint, in READY or JOINED."""
        request = self.request(wanted)
        async with self.holds.holding(request, wanted, wait_deadline()):
            await put(self.store, replace(endpoint(request.endpoint_id, Phase.READY), addresses=(ADDRESS,)))
        if until is Phase.JOINED:
            await self.join(request.endpoint_id)
        return request.endpoint_id

    async def fail(self, wanted: Plan, until: Phase) -> None:
        """Create an endpoint that fails in PENDING, or at Join in READY; settle what follows."""
        if until is Phase.READY:
            await self.remove(await self.create(wanted))
            return
        with pytest.raises(RuntimeError):
            async with self.holds.holding(self.request(wanted), wanted, wait_deadline()):
                raise RuntimeError("a plugin fails")
        await self.settlements.settle()

    def request(self, wanted: Plan) -> CreateEndpoint:
        """Return the call for the next endpoint."""
        return CreateEndpoint(
            network_id=NETWORK, endpoint_id=self.numbers.pop(0), requested=wanted.requested, options={}
        )

    async def join(self, endpoint_id: EndpointId) -> None:
        """Attach an endpoint."""
        await self.store.put_endpoint(replace(self.store.get_endpoint(endpoint_id), phase=Phase.JOINED))
        await self.holds.note_joined(endpoint_id)

    async def remove(self, endpoint_id: EndpointId) -> None:
        """Remove an endpoint, and settle what follows."""
        await self.store.put_endpoint(replace(self.store.get_endpoint(endpoint_id), phase=Phase.DELETING))
        await self.store.remove_endpoint(endpoint_id)
        self.settlements.note_endpoint_gone(endpoint_id)
        await self.settlements.settle()

    @property
    def hold(self) -> HoldRecord:
        """What the key has."""
        (found,) = self.store.ipam.holds()
        return found


@pytest.fixture(name="scene")
async def make_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """No key has anything; the engine's networks are known."""
    store = Store.open(tmp_path)
    await store.put_network(NetworkRecord(id=NETWORK, configuration="blue", name=None, internal=False, options={}))
    plugins = Plugins()
    reservations = HoldReservations(store, cast("PluginRuns", plugins))
    monkeypatch.setattr(module, "Contention", NoOther)
    evictions = cast("Evictions", None)
    settlements = HoldSettlements(store=store, reservations=reservations)
    holds = Holds(store=store, reservations=reservations, evictions=evictions, settlements=settlements)
    scene = Scene(store, plugins, holds, settlements)
    settlements.clock = lambda: scene.now
    yield scene
    store.close()


@pytest.mark.parametrize("refuses_delete", [False, True])
async def test_a_refused_address_is_kept(scene: Scene, *, refuses_delete: bool) -> None:
    """If the plugin refuses the address since its section was changed, the key keeps it; the error says what to do."""
    await scene.remove(await scene.create(plan(), until=Phase.JOINED))
    before = scene.hold
    scene.plugins.refuses = lambda document: document["ipam"] == WIDER
    scene.plugins.refuses_delete = refuses_delete
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
        await scene.settlements.settle()
        assert scene.hold.phase is HoldPhase.PENDING
        with pytest.raises(Refused, match=r"key web has 10.1.2.3/24.*has been allocated.*release --sticky web"):
            await scene.create(plan(WIDER))
        scene.plugins.assigned = None
    await scene.settlements.settle()
    assert (scene.hold.phase, scene.hold.addresses) == (HoldPhase.HELD, before.addresses)
    assert scene.plugins.assigned == before.id


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
    await scene.settlements.settle()
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
    await scene.settlements.settle()
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
    await scene.settlements.settle()
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


async def test_a_network_that_is_made_again(scene: Scene) -> None:
    """A network that was gone and is there again keeps its holds when their containers go."""
    created = await scene.create(plan(), until=Phase.JOINED)
    network = scene.store.find_network(NetworkId(NETWORK))
    assert network is not None
    await scene.store.remove_network(NETWORK)
    scene.settlements.note_network_gone(NETWORK)
    await scene.settlements.settle()
    await scene.store.put_network(network)
    await scene.remove(created)
    assert scene.hold.phase is HoldPhase.HELD
