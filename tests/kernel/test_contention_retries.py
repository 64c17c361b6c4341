# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A call repeats the failed teardown that holds what it needs; a refused ADD is repeated after another teardown.

A call that tears dead endpoints down waits for a limited time, whatever else holds their locks.
"""

import asyncio
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_bridge_state import AttachmentId, EndpointId, Phase
from cni_bridge_state.store import Store
from cni_invoker import PluginFailed
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.wire import EndpointReference
from cnm_bridge.driver.endpoints.attempts import Contention, wait_deadline
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.teardown_queue import FIRST, SECOND, Failing, Hanging, Slow, make_queue, running
from tests.records import NETWORK, endpoint, put


def failed_add(plugin: str, code: int, msg: str) -> PluginFailed:
    """Return the failure of a plugin's ADD."""
    path = Path("/opt/cni/bin") / plugin
    return PluginFailed(
        plugin=plugin, verb="ADD", path=path, code=code, msg=msg, exit_status=1, signal=None, duration_s=0.1
    )


ADDRESS = "10.1.0.2"
HOLDER, ATTACHMENT = EndpointId(FIRST), AttachmentId(FIRST)

INCOMPLETE_BRIDGE = failed_add("bridge", 999, "failed to set bridge addr: could not set bridge's mac: invalid argument")
REFUSED = failed_add("macvlan", 100, "the token is taken")


@pytest.fixture(autouse=True)
def _long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after a failed attempt never ends."""
    monkeypatch.setattr("cnm_bridge.system.retries.Retries.first_pause_s", 3600.0)


def contention(store: Store, kernel: Kernel, teardowns: TeardownQueue) -> Contention:
    """Begin the contention of a new endpoint."""
    dead = DeadEndpoints(store, Liveness(store, kernel), teardowns)
    asking = EndpointReference(network_id=NETWORK, endpoint_id=EndpointId(SECOND))
    return Contention(dead, "lan", wait_deadline(), asking, [ip_address(ADDRESS)])


async def fail_once(store: Store, teardowns: TeardownQueue) -> None:
    """Store an endpoint with an address, and let the first attempt to tear it down fail."""
    await put(store, replace(endpoint(FIRST, Phase.READY), addresses=(ADDRESS,)))
    await teardowns.request(HOLDER)
    await teardowns.wait_tried()
    assert teardowns.all[HOLDER].attempts == 1


@pytest.mark.parametrize("what", ["attachment", "address"])
async def test_a_del_that_fails_no_more(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What made the DEL of its holder fail has gone: the attachment or the address is free."""
    teardowns = make_queue(store, kernel, tmp_path / "run", Failing)
    async with running(teardowns):
        await fail_once(store, teardowns)
        monkeypatch.setattr(Failing, "is_failing", False)
        new = contention(store, kernel, teardowns)
        await (new.wait_for_attachment(ATTACHMENT) if what == "attachment" else new.wait_for_addresses())
        assert store.endpoints() == ()


async def test_an_attachment_whose_teardown_fails_again(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """The refusal says which DEL is pending, why it failed and what to do; it does not say that two share a name."""
    teardowns = make_queue(store, kernel, tmp_path / "run", Failing)
    async with running(teardowns):
        await fail_once(store, teardowns)
        with pytest.raises(Refused) as refused:
            await contention(store, kernel, teardowns).wait_for_attachment(ATTACHMENT)
        assert teardowns.all[HOLDER].attempts == 2
    text = str(refused.value)
    assert "identifier is not free yet" in text
    assert f"endpoint {FIRST} is being deleted, plugin bridge has not completed its DEL" in text
    assert "the test wants it" in text
    assert "cni-bridge status" in text
    assert "give each container" not in text


async def test_an_attachment_of_a_dead_endpoint(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Docker has lost its holder, whose DEL fails now: that is what the refusal says."""
    await put(store, endpoint(FIRST, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Failing)
    async with running(teardowns):
        new = contention(store, kernel, teardowns)
        with pytest.raises(Refused, match="plugin bridge has not completed its DEL"):
            await new.wait_for_attachment(ATTACHMENT)


@pytest.mark.parametrize(("step", "attempts"), [(Failing, 2), (Hanging, 1)])
async def test_an_address_whose_holder_fails_again(
    store: Store, kernel: Kernel, tmp_path: Path, step: type[Failing | Hanging], attempts: int
) -> None:
    """The DEL is tried once, or not if it hung; the call goes on, as `AddressOwners` keeps the new endpoint's rules."""
    teardowns = make_queue(store, kernel, tmp_path / "run", step)
    async with running(teardowns):
        await fail_once(store, teardowns)
        await contention(store, kernel, teardowns).wait_for_addresses()
        assert teardowns.all[HOLDER].attempts == attempts


async def test_a_bridge_that_an_earlier_add_has_left(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """`bridge` completes it when it fails, so there is another attempt at once, and no third one."""
    contending = contention(store, kernel, make_queue(store, kernel, tmp_path / "run", Failing))
    await contending.wait_or_raise(INCOMPLETE_BRIDGE)
    with pytest.raises(PluginFailed, match="could not set bridge's mac"):
        await contending.wait_or_raise(INCOMPLETE_BRIDGE)


async def test_an_add_is_repeated_three_times_at_most(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """A busy host frees something all the time: that would never end."""
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    async with running(teardowns):
        new = contention(store, kernel, teardowns)
        for _ in range(3):
            new.note_attempt()
            await tear_down(store, teardowns)
            await new.wait_or_raise(REFUSED)
        new.note_attempt()
        await tear_down(store, teardowns)
        with pytest.raises(PluginFailed, match="the token is taken"):
            await new.wait_or_raise(REFUSED)


async def test_a_teardown_that_ended_during_the_attempt(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It may have freed what the plugin refused; one that ended before, or on another network, has not."""
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    async with running(teardowns):
        await tear_down(store, teardowns)
        new = contention(store, kernel, teardowns)
        new.note_attempt()
        await tear_down(store, teardowns, "other")
        with pytest.raises(PluginFailed, match="the token is taken"):
            await new.wait_or_raise(REFUSED)
        again = contention(store, kernel, teardowns)
        await tear_down(store, teardowns)
        await again.wait_or_raise(REFUSED)


async def test_an_undo_of_another_call(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is neither waited for nor a reason for another attempt; if its call has given up, it is like any teardown."""
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    await put(store, endpoint(FIRST, Phase.PENDING))
    assert await teardowns.begin_undo(HOLDER)
    new = contention(store, kernel, teardowns)
    with pytest.raises(PluginFailed, match="the token is taken"):
        await new.wait_or_raise(REFUSED)
    async with running(teardowns):
        assert await teardowns.wait_undone(HOLDER)
    with pytest.raises(PluginFailed, match="the token is taken"):
        await new.wait_or_raise(REFUSED)
    await put(store, endpoint(FIRST, Phase.PENDING))
    assert await teardowns.begin_undo(HOLDER)
    assert not await teardowns.wait_undone(HOLDER)
    async with running(teardowns):
        await contention(store, kernel, teardowns).wait_or_raise(REFUSED)
    assert store.endpoints() == ()


async def tear_down(store: Store, teardowns: TeardownQueue, network: str = "lan") -> None:
    """Tear an endpoint of a CNI network down."""
    record = endpoint(FIRST, Phase.READY)
    configuration = {**record.attachment.configuration, "name": network}
    await put(store, replace(record, attachment=replace(record.attachment, configuration=configuration)))
    await teardowns.request(HOLDER)
    await teardowns.wait_tried()


async def test_a_held_lock_is_not_waited_for_without_limit(store: Store, few_processes: Path, tmp_path: Path) -> None:
    """While a call for the dead endpoint hangs with its lock, `tear_down` gives up after its limit."""
    kernel = Kernel(reply_limit_s=5.0, processes=few_processes)
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    teardowns = make_queue(store, kernel, tmp_path / "run", locks=locks)
    dead = DeadEndpoints(store, Liveness(store, kernel), teardowns)
    clock = asyncio.get_running_loop().time
    await put(store, replace(endpoint(HOLDER), sandbox_key=str(tmp_path / "gone")))
    async with asyncio.timeout(20):
        async with locks.hold(HOLDER):
            assert not await dead.tear_down(store.endpoints(), clock() + 0.5)
            assert store.get_endpoint(HOLDER).phase is Phase.JOINED
        await dead.tear_down(store.endpoints(), clock() + 0.5)
    assert store.get_endpoint(HOLDER).phase is Phase.DELETING  # it was found to be dead
    assert teardowns.leaving == {HOLDER}  # it has not been torn down
