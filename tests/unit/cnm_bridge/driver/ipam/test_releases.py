# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Releases of addresses, with an IPAM plugin whose DEL fails."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from cni_bridge_state import AddressId, AddressRecord, ReservationRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.ipam.releases import PluginRuns, Releases
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.scheduling import KeyedLocks
from tests.records import address_record

PENDING = address_record(pool="lan,10.1.2.0/24,,5f0c81aa")


class Plugins:
    """Stands in for the runs of plugins: a DEL fails as often as there are errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.deleted: list[AddressId] = []

    async def delete(self, record: AddressRecord, _: ReservationRecord) -> None:
        """Fail, or succeed after all errors."""
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(record.id)

    async def tidy(self, _: Callable[[], bool]) -> None:
        """There is no namespace."""


@pytest.mark.parametrize("count", [1, 2])
async def test_a_call_waits_for_the_next_attempt(store: Store, count: int) -> None:
    """After a failed attempt the address is free when the call goes on, if the plugin works again."""
    await store.ipam.put_address(PENDING)
    plugins = Plugins(KernelError("make", "a namespace", "no space"))
    teardowns = cast("TeardownQueue", None)  # no endpoint has the address
    releases = Releases(store, cast("PluginRuns", plugins), teardowns, KeyedLocks())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(releases.run())
        await releases.wait_tried([PENDING.id], 5)
        assert "no space" in str(releases.all[PENDING.id].error)
        await asyncio.gather(*(releases.wait_tried([PENDING.id], 5) for _ in range(count)))
        assert plugins.deleted == [PENDING.id]
        assert not releases.all
        running.cancel()
