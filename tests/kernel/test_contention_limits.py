# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A call that tears dead endpoints down waits for a limited time, whatever else holds their locks."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state import EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.teardown_queue import make_queue
from tests.records import endpoint, put

ID = EndpointId("1" * 64)


@pytest.fixture(name="kernel")
def make_kernel(few_processes: Path) -> Kernel:
    """A kernel that sees few processes."""
    return Kernel(reply_limit_s=5.0, processes=few_processes)


async def test_a_held_lock_is_not_waited_for_without_limit(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """While a call for the dead endpoint hangs with its lock, `tear_down` gives up after its limit."""
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    teardowns = make_queue(store, kernel, tmp_path / "run", locks=locks)
    dead = DeadEndpoints(store, Liveness(store, kernel), teardowns)
    clock = asyncio.get_running_loop().time
    await put(store, replace(endpoint(ID), sandbox_key=str(tmp_path / "gone")))
    async with asyncio.timeout(20):
        async with locks.hold(ID):
            assert not await dead.tear_down(store.endpoints(), clock() + 0.5)
            assert store.get_endpoint(ID).phase is Phase.JOINED
        await dead.tear_down(store.endpoints(), clock() + 0.5)
    assert store.get_endpoint(ID).phase is Phase.DELETING  # it was found to be dead
    assert teardowns.leaving == {ID}  # it has not been torn down
