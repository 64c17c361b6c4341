# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The first process of a container with published ports is found, and its end is known by one look."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwner, SandboxOwners
from cnm_bridge.driver.endpoints.first_processes import FirstProcesses
from cnm_bridge.system.engine import Engine, KnownRelease
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks
from tests.kernel.namespace import Namespace, living_process
from tests.records import endpoint, put

ID = EndpointId("e" * 64)
PORTS: JsonObject = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


async def joined(store: Store, sandbox: Path) -> EndpointRecord:
    """Store an endpoint with a published port, of mode move, in a sandbox."""
    made = endpoint(ID, capability_args=PORTS)
    made = replace(made, sandbox_key=str(sandbox), attachment=replace(made.attachment, mode=AttachMode.MOVE))
    await put(store, made)
    return store.get_endpoint(ID)


class HeldOwners(SandboxOwners):
    """Finds nothing before the test allows it."""

    begun: asyncio.Event
    allowed: asyncio.Event

    async def find(self, sandbox: Path) -> SandboxOwner:
        """Wait, and find."""
        self.begun.set()
        await self.allowed.wait()
        return await super().find(sandbox)


def make(store: Store, kernel: Kernel, *, owners: type[SandboxOwners] = SandboxOwners) -> FirstProcesses:
    """Make the object, with an engine that does not answer."""
    release = KnownRelease(store)
    release.lose()
    return FirstProcesses(store, kernel, owners(kernel, Engine("unix:///none", 1.0), release), KeyedLocks())


@asynccontextmanager
async def searching(processes: FirstProcesses) -> AsyncIterator[None]:
    """Search in the background for the length of the block."""
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(processes.run())
        yield
        work.cancel()


async def wait_found(store: Store) -> EndpointRecord:
    """Wait until the process is stored, and return the record."""
    await wait_for(lambda: store.get_endpoint(ID).first_process is not None)
    return store.get_endpoint(ID)


async def wait_for(is_true: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(10):
        while not is_true():  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.01)


@contextmanager
def container(sandbox: Path) -> Iterator[None]:
    """Run a process with a PID namespace of its own in a sandbox for the length of the block."""
    with living_process("unshare", "--pid", "--fork", "--kill-child", "nsenter", f"--net={sandbox}"):
        yield


async def test_the_end_of_a_container(store: Store, kernel: Kernel, sandbox: Namespace) -> None:
    """It is known as soon as the first process has ended, although another process is in the sandbox."""
    await joined(store, sandbox.path)
    processes = make(store, kernel)
    with sandbox.living():
        with container(sandbox.path):
            async with searching(processes):
                processes.find(ID)
                record = await wait_found(store)
            assert not await processes.has_ended(record)
        async with asyncio.timeout(10):
            while not await processes.has_ended(record):  # noqa: ASYNC110 - nothing sets an event
                await asyncio.sleep(0.01)


async def test_a_container_whose_process_is_not_known(store: Store, tmp_path: Path, sandbox: Namespace) -> None:
    """It has ended if no process is in its sandbox: a very short one is over before its process is found."""
    processes = make(store, Kernel(reply_limit_s=5.0, processes=tmp_path))  # a machine need not show all of its own
    record = await joined(store, sandbox.path)
    with sandbox.living() as pid:
        (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        assert not await processes.has_ended(record)
    assert await processes.has_ended(record)


async def test_a_sandbox_that_is_not_known(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Its container counts as running."""
    assert not await make(store, kernel).has_ended(await joined(store, tmp_path / "none"))


async def test_a_sandbox_that_does_not_exist_yet(
    store: Store, kernel: Kernel, tmp_path: Path, host: Namespace, sandbox: Namespace
) -> None:
    """Before Engine 28, it exists as soon as the link has left the host namespace."""
    key = tmp_path / "sandbox"
    link = Endpoint(await joined(store, key)).host_link
    host.run(f"ip link add {link} type bridge")
    processes = make(store, kernel)
    with container(sandbox.path):
        async with searching(processes):
            processes.find(ID)
            await asyncio.sleep(0.1)
            key.symlink_to(sandbox.path)
            await asyncio.sleep(0.1)
            assert store.get_endpoint(ID).first_process is None
            host.run(f"ip link delete {link}")
            assert not await processes.has_ended(await wait_found(store))


async def test_what_the_previous_run_has_not_found(store: Store, kernel: Kernel, sandbox: Namespace) -> None:
    """It is searched for at the start, without a request."""
    await joined(store, sandbox.path)
    with container(sandbox.path):
        async with searching(make(store, kernel)):
            await wait_found(store)


async def test_an_endpoint_that_leaves_meanwhile(store: Store, kernel: Kernel, sandbox: Namespace) -> None:
    """Nothing is stored for it, and the others are still served."""
    record = await joined(store, sandbox.path)
    await store.put_endpoint(replace(record, phase=Phase.READY))
    processes = make(store, kernel)
    with container(sandbox.path):
        async with searching(processes):
            processes.find(ID)
            await asyncio.sleep(0.1)
            assert store.get_endpoint(ID).first_process is None
            await store.put_endpoint(record)
            processes.find(ID)
            await wait_found(store)


@pytest.mark.parametrize("how", ["leaves", "another sandbox", "forgotten"])
async def test_an_endpoint_that_changes_during_the_search(
    store: Store, kernel: Kernel, sandbox: Namespace, how: str
) -> None:
    """What is found for its former sandbox is not stored."""
    record = await joined(store, sandbox.path)
    HeldOwners.begun, HeldOwners.allowed = asyncio.Event(), asyncio.Event()
    processes = make(store, kernel, owners=HeldOwners)
    with container(sandbox.path):
        async with searching(processes):
            await asyncio.wait_for(HeldOwners.begun.wait(), 10)
            match how:
                case "leaves":
                    await store.put_endpoint(replace(record, phase=Phase.READY))
                case "another sandbox":
                    await store.put_endpoint(replace(record, sandbox_key="/run/netns/other"))
                case _:
                    processes.forget(ID)
            HeldOwners.allowed.set()
            await asyncio.sleep(0.2)
            assert store.get_endpoint(ID).first_process is None
