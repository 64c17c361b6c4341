# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A bug in background work, or an engine that sends invalid events, ends neither the work nor the daemon."""

import asyncio
from dataclasses import replace
from pathlib import Path

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.sandbox_plan import Placement
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.attach.announcer import Announcer
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.engine import FakeEngine, closing
from tests.kernel.namespace import Namespace
from tests.records import endpoint, put

TUNED: JsonObject = {
    "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
    "addresses": [],
    "routes": [],
    "rules": [],
    "neighbours": [],
    "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
}


async def test_invalid_events_do_not_end_reconcile(store: Store, tmp_path: Path) -> None:
    """After an invalid event, reconcile opens the event stream again, as after any end of the stream."""
    engine = FakeEngine(tmp_path / "engine", events=[b"7\n", b"[]\n"])
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=engine.host)
    async with engine.running(), closing(assemble(settings, store)) as daemon, asyncio.TaskGroup() as tasks:
        reconcile = tasks.create_task(daemon.reconciler.run())
        async with asyncio.timeout(30):
            while engine.followed < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not reconcile.done()
        reconcile.cancel()


async def test_an_invalid_snapshot_does_not_end_the_sync(store: Store, kernel: Kernel) -> None:
    """An endpoint that cannot be synchronised stops neither the others nor the start of the daemon."""
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    sandbox_sync = SandboxSync(store, kernel, locks, Announcer(store, kernel), KnownVersion(store))
    record = replace(endpoint("1" * 64), snapshot={"link": 7}, sandbox_key="/run/docker/netns/1")
    await put(store, record)
    with structlog.testing.capture_logs() as logged:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sandbox_sync.run())
            async with asyncio.timeout(20):
                while not logged:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert not running.done()
            running.cancel()
    assert [(line["event"], line["endpoint_id"]) for line in logged] == [("sync.bug", record.id)]


async def test_links_that_never_arrive_do_not_delay_new_ones(store: Store, kernel: Kernel, sandbox: Namespace) -> None:
    """Links of the previous run are awaited for ten seconds each; a new container is watched at once."""
    for number in range(1, 21):
        record = endpoint(f"{number:064x}")
        await put(store, replace(record, snapshot=TUNED, sandbox_key=str(sandbox.path)))
    sandbox_sync = SandboxSync(store, kernel, KeyedLocks(), Announcer(store, kernel), KnownVersion(store))
    with structlog.testing.capture_logs() as logged:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sandbox_sync.run())
            await asyncio.sleep(0.2)  # as many as may are awaited now
            none = Placement(addresses=(), destinations=())
            assert not await kernel.link_in_sandbox(sandbox.path.with_name("none"), "new").wait_placed(
                none, limit_s=60.0
            )
            running.cancel()
    assert logged == []
