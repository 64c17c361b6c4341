# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The queue of teardowns, with teardowns that take a while, fail or hang, and a Docker that is busy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import ClassVar

from cni_invoker import Limits, PluginTimeout, Runtime
from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.scheduling.keyed_locks import KeyedLocks
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.in_use import InUseCheck
from cnm_bridge.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.teardown.queue import TeardownQueue
from cnm_bridge.teardown.slots import TeardownSlots
from cnm_bridge.teardown.teardown import Teardown
from state import EndpointId, EndpointRecord, Phase, Store
from tests.kernel.attachers import make_attachers

__all__ = [
    "BOOT",
    "FIRST",
    "SECOND",
    "Clumsy",
    "Docker",
    "Slow",
    "Stuck",
    "Sulky",
    "Walled",
    "make_queue",
    "running",
    "wait_gone",
]

BOOT = "0c1f"
FIRST, SECOND = token_hex(32), token_hex(32)  # nobody else's: processes of the whole machine are looked at


class Slow(Teardown):
    """A tear down that counts how many there are at once."""

    at_once = 0
    most = 0

    async def __call__(self, record: EndpointRecord) -> None:
        """Take a while."""
        Slow.at_once += 1
        Slow.most = max(Slow.most, Slow.at_once)
        await asyncio.sleep(0.01)
        Slow.at_once -= 1
        await self._store.put_endpoint(replace(record, phase=Phase.DELETING))
        await self._store.remove_endpoint(record.id)


class Clumsy(Slow):
    """A tear down with a bug."""

    async def __call__(self, record: EndpointRecord) -> None:
        """Stumble over the first endpoint."""
        if record.id == FIRST:
            raise RuntimeError("a bug")
        await super().__call__(record)


class Sulky(Slow):
    """A teardown that fails until it is allowed to complete."""

    is_sulky = True

    async def __call__(self, record: EndpointRecord) -> None:
        """Fail."""
        if self.is_sulky:
            raise KernelError("sulk", "tear down", "no reason")
        await super().__call__(record)


class Stuck(Slow):
    """A tear down with a plugin that hangs: killed the first time, and at work for ever the second time."""

    killed: ClassVar[set[str]] = set()
    at_work: ClassVar[set[str]] = set()

    async def __call__(self, record: EndpointRecord) -> None:
        """Hang, with all endpoints but the second."""
        if record.id == SECOND:
            await super().__call__(record)
        elif record.id not in self.killed:
            self.killed.add(record.id)
            raise PluginTimeout(plugin="stuck", verb="DEL", path=Path("stuck"), timeout_s=60.0, started=True)
        else:
            self.at_work.add(record.id)
            await asyncio.Event().wait()


class Walled(Slow):
    """A tear down of an endpoint with a `firewall`."""

    async def __call__(self, record: EndpointRecord) -> None:
        """Look whether the address is claimed."""
        self._owners.find_owner(record, "firewall")
        await super().__call__(record)


class Docker:
    """Is busy until the test says that it is quiet; never about the second endpoint."""

    def __init__(self) -> None:
        self.quiet_for = 0.0

    def quiet_s(self, besides: str) -> float:
        """Tell for how long it has wanted nothing but this."""
        return 60.0 if besides == SECOND else self.quiet_for


def make_queue(
    store: Store,
    kernel: Kernel,
    run_dir: Path,
    teardown: type[Teardown] = Teardown,
    *,
    docker: Docker | None = None,
    owners: AddressOwners | None = None,
    plugins: int = 2,
) -> TeardownQueue:
    """Make the object under test, without any plugin."""
    docker = docker or Docker()
    owners = owners or AddressOwners(store)
    places = TeardownSlots(plugins)
    undo = teardown(store, make_attachers(store, Runtime([], Limits()), kernel), owners, places)
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    return TeardownQueue(
        store=store,
        teardown=undo,
        in_use=InUseCheck(kernel, run_dir),
        locks=locks,
        owners=owners,
        places=places,
        boot_id=BOOT,
        orphaned_plugins=OrphanedPlugins(run_dir / "running"),
        quiet_s=docker.quiet_s,
    )


@asynccontextmanager
async def running(teardowns: TeardownQueue) -> AsyncIterator[None]:
    """Have tear downs done in the background."""
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(teardowns.run())
        yield
        task.cancel()


async def wait_gone(store: Store, endpoint_id: str) -> None:
    """Wait for the end of an endpoint without letting that be known."""
    while store.find_endpoint(EndpointId(endpoint_id)) is not None:  # noqa: ASYNC110 - nobody would set an event
        await asyncio.sleep(0.01)
