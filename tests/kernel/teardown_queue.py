# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A queue of teardowns that take a while, fail or hang, and a Docker that is busy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import ClassVar

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Limits, Runtime
from cni_invoker.errors import PluginTimeout
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import PendingTeardowns, TeardownSlots
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.teardown import Teardown
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.attachers import make_attachers, make_teardown

BOOT = "0c1f"
FIRST, SECOND = token_hex(32), token_hex(32)  # unique on this machine: the queue examines the processes of all of it


class Slow(Teardown):
    """A teardown that takes a while."""

    async def undo(self, record: EndpointRecord) -> None:
        """Wait a moment, then remove the record."""
        await asyncio.sleep(0.01)
        await self.store.put_endpoint(replace(record, phase=Phase.DELETING))
        await self.store.remove_endpoint(record.id)


class Buggy(Slow):
    """A teardown with a bug."""

    async def undo(self, record: EndpointRecord) -> None:
        """Raise an unexpected exception for the first endpoint."""
        if record.id == FIRST:
            raise RuntimeError("a bug")
        await super().undo(record)


class Failing(Slow):
    """A teardown that fails until it is allowed to complete."""

    is_failing = True

    async def undo(self, record: EndpointRecord) -> None:
        """Fail, or take a while."""
        if self.is_failing:
            raise KernelError("link", "tear down", "the test wants it")
        await super().undo(record)


class Hanging(Slow):
    """A teardown with a plugin that hangs: it is killed the first time, and never returns the second time."""

    killed: ClassVar[set[str]] = set()
    hanging: ClassVar[set[str]] = set()

    async def undo(self, record: EndpointRecord) -> None:
        """Hang for all endpoints but the second."""
        if record.id == SECOND:
            await super().undo(record)
        elif record.id not in self.killed:
            self.killed.add(record.id)
            raise PluginTimeout(plugin="hanging", verb="DEL", path=Path("hanging"), timeout_s=60.0, started=True)
        else:
            self.hanging.add(record.id)
            await asyncio.Event().wait()


class WithFirewall(Slow):
    """A teardown of an endpoint with the plugin `firewall`."""

    async def undo(self, record: EndpointRecord) -> None:
        """Fail as long as a new endpoint claims the address."""
        self.owners.find_owner(record, "firewall")
        await super().undo(record)


class Docker:
    """A Docker that is busy until a test sets `quiet_for`, except with the second endpoint."""

    def __init__(self) -> None:
        self.quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Return for how many seconds it has made no call, except about this endpoint."""
        return 60.0 if besides == SECOND else self.quiet_for


def make_queue(
    store: Store,
    kernel: Kernel,
    run_dir: Path,
    teardown: type[Teardown] = Teardown,
    *,
    docker: Docker | None = None,
    owners: AddressOwners | None = None,
    liveness: Liveness | None = None,
    locks: KeyedLocks[EndpointId] | None = None,
    plugins: int = 2,
) -> TeardownQueue:
    """Make the queue under test, without any plugin."""
    pending = PendingTeardowns() if owners is None else owners.pending
    attachers = make_attachers(store, Runtime([], Limits()), kernel, run_dir)
    return TeardownQueue(
        store=store,
        teardown=make_teardown(
            store, attachers, kernel, run_dir, pending=pending, owners=owners, liveness=liveness, kind=teardown
        ),
        pending=pending,
        locks=locks or KeyedLocks(),
        slots=TeardownSlots(plugins),
        quiet_s=(docker or Docker()).quiet_s,
    )


@asynccontextmanager
async def running(teardowns: TeardownQueue) -> AsyncIterator[None]:
    """Run the queue in the background for the length of the block."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(teardowns.run())
        yield
        task.cancel()


async def wait_gone(store: Store, endpoint_id: str) -> None:
    """Wait until an endpoint's record is gone; unlike `wait_tried`, this does not expedite its teardown."""
    while store.find_endpoint(EndpointId(endpoint_id)) is not None:  # noqa: ASYNC110 - nothing sets an event
        await asyncio.sleep(0.01)
