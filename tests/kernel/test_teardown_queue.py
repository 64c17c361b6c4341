# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The queue completes every pending teardown: in which order, after which failures, and what it leaves alone."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar

import pytest

from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList, PluginFailed
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from cnm_bridge.system.kernel import Kernel
from tests.kernel.teardown_queue import (
    FIRST,
    SECOND,
    Buggy,
    Docker,
    Failing,
    Hanging,
    Slow,
    WithFirewall,
    make_queue,
    running,
    wait_gone,
)
from tests.records import endpoint, put


async def test_dead_endpoints_are_torn_down_in_the_background(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """`tear_down` stores DELETING before it returns; a bug in the teardown of one endpoint does not stop the next."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id))
    teardowns = make_queue(store, kernel, tmp_path / "run", Buggy)
    async with asyncio.timeout(20):
        for record in store.endpoints():
            await teardowns.tear_down(record)
        assert {record.phase for record in store.endpoints()} == {Phase.DELETING}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(teardowns.run())
            await teardowns.wait_tried()
            running.cancel()
    assert [record.id for record in store.endpoints()] == [FIRST]
    assert set(teardowns.all) == {FIRST}


@pytest.fixture
def yields_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that yields to Docker's calls without a time limit."""
    monkeypatch.setattr("cnm_bridge.driver.teardown.queue._LONGEST_DEFERRAL_S", 3600.0)


@pytest.mark.usefixtures("yields_without_limit")
async def test_a_requested_teardown_yields_to_dockers_calls(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is on disk at once, starts only when Docker has been quiet for a moment, and lets dead ones go first."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))
    docker = Docker()
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, docker=docker)
    async with running(teardowns):
        await teardowns.request(EndpointId(FIRST))
        assert store.get_endpoint(EndpointId(FIRST)).phase is Phase.DELETING
        await teardowns.tear_down(store.get_endpoint(EndpointId(SECOND)))
        await wait_gone(store, SECOND)
        assert teardowns.untried == teardowns.requested_ids == {FIRST}
        docker.quiet_for = 60.0
        await wait_gone(store, FIRST)
        await teardowns.wait_tried()
    assert (teardowns.all, teardowns.requested_ids) == ({}, frozenset())


@pytest.mark.usefixtures("yields_without_limit")
async def test_a_teardown_that_a_call_waits_for_starts_at_once(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """So does that of an endpoint that is the only one Docker makes calls about; Docker need not be quiet."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    async with running(teardowns):
        for endpoint_id in (FIRST, SECOND):
            await teardowns.request(EndpointId(endpoint_id))
        await wait_gone(store, SECOND)  # if both started at once, the first would be gone before it
        assert [record.id for record in store.endpoints()] == [FIRST]
        await teardowns.wait_tried([EndpointId(FIRST)])
        assert store.endpoints() == ()


async def test_a_request_repeats_a_failed_teardown_at_once(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DeleteEndpoint for an endpoint whose teardown has failed does not wait for the pause to end."""
    monkeypatch.setattr("cnm_bridge.system.retries.Retries.first_pause_s", 3600.0)
    await put(store, endpoint(SECOND, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Failing)
    async with running(teardowns):
        await teardowns.request(EndpointId(SECOND))
        await teardowns.wait_tried()
        assert "the test wants it" in str(teardowns.all[EndpointId(SECOND)].error)
        monkeypatch.setattr(Failing, "is_failing", False)
        await teardowns.request(EndpointId(SECOND))
        await wait_gone(store, SECOND)


async def test_a_request_that_cannot_be_stored(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`request` raises, `tear_down` does not; both endpoints are torn down all the same, without yielding to Docker."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY))

    async def refuse(record: EndpointRecord) -> None:
        raise StateUnusable(tmp_path, "write", f"no space for {record.id}")

    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    with monkeypatch.context() as full:
        full.setattr(store, "put_endpoint", refuse)
        with pytest.raises(StateUnusable, match="no space"):
            await teardowns.request(EndpointId(FIRST))
        await teardowns.tear_down(store.get_endpoint(EndpointId(SECOND)))
    assert teardowns.untried == {FIRST, SECOND}
    assert teardowns.requested_ids == frozenset()
    async with running(teardowns):
        await teardowns.wait_tried()
    assert store.endpoints() == ()


async def test_a_request_for_an_unknown_endpoint(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Nothing is added: the endpoint is gone already, or never existed."""
    teardowns = make_queue(store, kernel, tmp_path / "run")
    await teardowns.request(EndpointId(FIRST))
    assert (teardowns.all, teardowns.requested_ids) == ({}, frozenset())


async def test_tear_down_skips_a_record_that_has_changed(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """The endpoint has been joined since reconcile saw it: it keeps its phase, and no teardown is added."""
    await put(store, endpoint(FIRST, Phase.READY))
    (found,) = store.endpoints()
    await store.put_endpoint(replace(found, phase=Phase.JOINED))
    teardowns = make_queue(store, kernel, tmp_path / "run")
    await teardowns.tear_down(found)
    assert (teardowns.all, store.get_endpoint(EndpointId(FIRST)).phase) == ({}, Phase.JOINED)


async def test_plugins_that_hang_again_leave_slots_for_others(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Teardowns whose plugin has hung before get half of the slots; the others are torn down meanwhile."""
    for number in range(40):
        await put(store, endpoint(f"{number:064x}", Phase.READY))
    await put(store, endpoint(SECOND, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Hanging, plugins=10)
    half_of_the_slots = 5
    async with running(teardowns):
        for record in store.endpoints():
            if record.id != SECOND:
                await teardowns.tear_down(record)
        while len(Hanging.hanging) < half_of_the_slots:  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.01)
        await teardowns.tear_down(store.get_endpoint(EndpointId(SECOND)))
        await wait_gone(store, SECOND)
        assert len(Hanging.hanging) == half_of_the_slots


ANSWER = PluginFailed(
    plugin="bridge", verb="DEL", path=Path("bridge"), code=7, msg="no", exit_status=1, signal=None, duration_s=0.1
)


class HungOnce(Slow):
    """A teardown whose plugin hangs in the first attempt, and that ends with another error in the next ones."""

    errors: ClassVar[list[Exception]] = []

    async def __call__(self, record: EndpointRecord) -> None:  # noqa: ARG002
        """Fail."""
        raise self.errors.pop(0)


@pytest.mark.parametrize(
    ("error", "is_hung"), [(ANSWER, False), (KernelError("link", "move", "the test wants it"), True)]
)
async def test_a_plugin_that_answers_again(
    store: Store, kernel: Kernel, tmp_path: Path, error: Exception, is_hung: bool
) -> None:
    """Its teardown is not treated as one that hangs, even if the answer is an error; other errors do not show that."""
    timeout = PluginTimeout(plugin="bridge", verb="DEL", path=Path("bridge"), timeout_s=60.0, started=True)
    HungOnce.errors = [timeout, error, error]
    await put(store, endpoint(FIRST, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", HungOnce)
    (record,) = store.endpoints()
    async with running(teardowns):
        await teardowns.tear_down(record)
        await teardowns.wait_tried()
        assert teardowns.has_hung(record.id)
        await teardowns.retry([record.id])
        assert teardowns.has_hung(record.id) is is_hung


async def test_a_teardown_that_waits_for_a_claimed_address(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEL of `firewall` is put off while a new endpoint claims the address, and runs as soon as the claim ends."""
    monkeypatch.setattr("cnm_bridge.system.retries.Retries.first_pause_s", 3600.0)
    with_firewall = endpoint(FIRST, plugins=[{"type": "firewall"}])
    await put(store, replace(with_firewall, addresses=("10.1.0.2",)))
    owners = AddressOwners(store, PendingTeardowns())
    teardowns = make_queue(store, kernel, tmp_path / "run", WithFirewall, owners=owners)
    configuration = NetworkConfigurationList.from_document(with_firewall.attachment.configuration)
    async with running(teardowns):
        with owners.claim(EndpointId(SECOND), [ip_address("10.1.0.2")], configuration):
            await teardowns.tear_down(store.get_endpoint(EndpointId(FIRST)))
            await teardowns.wait_tried([EndpointId(FIRST)])
            error = teardowns.all[EndpointId(FIRST)].error
            assert error is not None
            assert "plugin firewall waits for container" in error
        await wait_gone(store, FIRST)


async def test_a_host_that_is_never_quiet(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requested teardown is deferred for a limited time; its address must become free."""
    monkeypatch.setattr("cnm_bridge.driver.teardown.queue._LONGEST_DEFERRAL_S", 0.05)
    await put(store, endpoint(FIRST, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, docker=Docker())
    async with running(teardowns):
        await teardowns.request(EndpointId(FIRST))
        await wait_gone(store, FIRST)


class Blocking(Slow):
    """A teardown whose first two attempts fail when a test allows them to end."""

    attempts = 0
    may_end = asyncio.Event()

    async def __call__(self, record: EndpointRecord) -> None:
        """Wait, then fail or complete."""
        Blocking.attempts += 1
        await self.may_end.wait()
        if self.attempts < 3:
            raise KernelError("link", "tear down", "the test wants it")
        await super().__call__(record)


async def wait_begun(attempts: int) -> None:
    """Wait until an attempt of `Blocking` has begun."""
    while Blocking.attempts < attempts:  # noqa: ASYNC110 - nothing sets an event
        await asyncio.sleep(0.001)


async def test_a_teardown_that_is_added_again(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During its first attempt that changes nothing; during a later one it ends the pause after it."""
    monkeypatch.setattr("cnm_bridge.system.retries.Retries.first_pause_s", 3600.0)
    monkeypatch.setattr(Blocking, "attempts", 0)
    monkeypatch.setattr(Blocking, "may_end", may_end := asyncio.Event())
    await put(store, endpoint(FIRST, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", Blocking)
    first = EndpointId(FIRST)
    async with running(teardowns):
        for _ in range(2):
            teardowns.add(first)
        await wait_begun(1)
        teardowns.add(first)
        may_end.set()
        await teardowns.wait_tried()
        await asyncio.sleep(0.02)
        assert (Blocking.attempts, teardowns.all[first].attempts) == (1, 1)
        may_end.clear()
        teardowns.add(first)
        await wait_begun(2)
        teardowns.add(first)
        may_end.set()
        await wait_gone(store, FIRST)
    assert Blocking.attempts == 3


class HangingFirst(Slow):
    """A teardown that hangs for the first endpoint, and fails for all others, until a test ends that."""

    hangs = True

    async def __call__(self, record: EndpointRecord) -> None:
        """Hang, fail or complete."""
        if self.hangs and record.id == FIRST:
            await asyncio.Event().wait()
        if self.hangs:
            raise KernelError("link", "tear down", "the test wants it")
        await super().__call__(record)


async def test_a_queue_that_is_run_again(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error of the daemon it continues with all: those in an attempt, in a pause, and not yet begun."""
    monkeypatch.setattr("cnm_bridge.system.retries.Retries.first_pause_s", 3600.0)
    third = "3" * 64
    for endpoint_id in (FIRST, SECOND, third):
        await put(store, endpoint(endpoint_id, Phase.READY))
    teardowns = make_queue(store, kernel, tmp_path / "run", HangingFirst)
    monkeypatch.setattr(HangingFirst, "hangs", True)
    async with running(teardowns):
        for endpoint_id in (FIRST, SECOND):
            teardowns.add(EndpointId(endpoint_id))
        await teardowns.wait_tried([EndpointId(SECOND)])
        assert teardowns.all[EndpointId(SECOND)].attempts == 1
    monkeypatch.setattr(HangingFirst, "hangs", False)
    teardowns.add(EndpointId(third))
    async with running(teardowns):
        for endpoint_id in (FIRST, SECOND, third):
            await wait_gone(store, endpoint_id)
    assert not teardowns.all


@pytest.mark.usefixtures("yields_without_limit")
async def test_a_docker_that_becomes_quiet_while_a_teardown_waits(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It waits for the rest of the tenth of a second, again and again as long as Docker makes calls."""
    await put(store, endpoint(FIRST, Phase.READY))
    docker = Docker()
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, docker=docker)
    async with running(teardowns):
        await teardowns.request(EndpointId(FIRST))
        docker.quiet_for = 0.05
        await asyncio.sleep(0.12)
        assert teardowns.untried == {FIRST}
        docker.quiet_for = 0.2
        await wait_gone(store, FIRST)
