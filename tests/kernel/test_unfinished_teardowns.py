# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon does at its start with the teardowns that its previous run did not finish."""

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Execution, Verb
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins, Teardown
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.kernel.teardown_queue import BOOT, FIRST, SECOND, Slow, make_queue, running, wait_gone
from tests.records import endpoint, put


def unfinished(
    store: Store,
    teardowns: TeardownQueue,
    kernel: Kernel,
    directory: Path,
    *,
    journal: Journal | None = None,
    limit_s: float = 10.0,
    boot_limit_s: float = 300.0,
) -> UnfinishedTeardowns:
    """Make the object under test, after a run that left no plugin behind."""
    return UnfinishedTeardowns(
        store=store,
        teardowns=teardowns,
        orphaned_plugins=OrphanedPlugins(directory / "running"),
        liveness=Liveness(store, kernel),
        journal=journal or Journal(),
        boot_id=BOOT,
        limit_s=limit_s,
        boot_limit_s=boot_limit_s,
    )


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.READY])
async def test_a_pending_endpoint_in_use_becomes_joined(
    store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path, phase: Phase
) -> None:
    """A PENDING record on which a container runs was not the latest: it becomes JOINED; the others are torn down."""
    await put(store, endpoint(FIRST, phase, boot_id=BOOT))
    await put(store, endpoint(SECOND, Phase.PENDING, boot_id=BOOT))
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname cni-bridge-{FIRST}")
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    with sandbox.living():
        await unfinished(store, teardowns, kernel, tmp_path).add()
        teardowns.add(EndpointId(FIRST))
        async with running(teardowns):
            await teardowns.wait_tried()
    assert store.get_endpoint(EndpointId(FIRST)).phase is Phase.JOINED
    assert store.find_endpoint(EndpointId(SECOND)) is None
    assert not teardowns.all
    sandbox.ip("link del marked")


class Blind(Liveness):
    """It fails until it may see."""

    can_see = False

    async def find_in_use(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Fail, or check."""
        if not self.can_see:
            raise KernelError("processes", "read", "the test wants it")
        return await super().find_in_use(records)


async def test_a_pending_endpoint_stays_while_its_use_is_unknown(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """A container may run on it; the attempt fails, and the next one checks again."""
    await put(store, endpoint(FIRST, Phase.PENDING, boot_id=BOOT))
    liveness = Blind(store, kernel)
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow, liveness=liveness)
    await unfinished(store, teardowns, kernel, tmp_path).add()
    async with running(teardowns):
        await teardowns.wait_tried()
        assert store.get_endpoint(EndpointId(FIRST)).phase is Phase.PENDING
        assert "the test wants it" in str(teardowns.all[EndpointId(FIRST)].error)
        liveness.can_see = True
        await wait_gone(store, FIRST)


async def test_deleted_endpoints_and_those_of_an_earlier_boot_are_torn_down(
    store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path
) -> None:
    """A DELETING endpoint is torn down although its link is in a sandbox; another boot leaves no sandbox."""
    await put(store, endpoint(FIRST, boot_id=BOOT))
    await store.put_endpoint(endpoint(FIRST, Phase.DELETING, boot_id=BOOT))
    await put(store, endpoint(SECOND, boot_id="an earlier one"))
    teardowns = make_queue(store, kernel, tmp_path / "run")
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname cni-bridge-{FIRST}")
    with sandbox.living():
        assert await unfinished(store, teardowns, kernel, tmp_path).add() == 2
    sandbox.ip("link del marked")


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "just ended"])
async def test_another_boot_id_without_a_reboot(
    store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path, *, is_running: bool
) -> None:
    """An endpoint whose link is in its sandbox is not torn down: a reboot would have left neither."""
    path = str(sandbox.path)
    await put(store, replace(endpoint(FIRST, boot_id="another one"), sandbox_key=path))
    await put(store, replace(endpoint(SECOND, boot_id="another one"), sandbox_key=path))
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname cni-bridge-{FIRST}")
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    with sandbox.living() if is_running else nullcontext():
        assert await unfinished(store, teardowns, kernel, tmp_path).add() == 1
    assert set(teardowns.all) == {SECOND}
    sandbox.ip("link del marked")


@dataclass(slots=True)
class Crowd:
    """Counts the teardowns that run at once, and holds them until there are as many as expected."""

    expected: int
    now: int = 0
    most: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def teardown(self) -> type[Teardown]:
        """Make a teardown that is counted."""
        crowd = self

        class Counted(Slow):
            async def __call__(self, record: EndpointRecord) -> None:
                crowd.now += 1
                crowd.most = max(crowd.most, crowd.now)
                if crowd.now == crowd.expected:
                    crowd.complete.set()
                await crowd.complete.wait()
                await super().__call__(record)
                crowd.now -= 1

        return Counted


@pytest.mark.parametrize(("plugins", "most"), [(1, 4), (20, 20)])
async def test_the_number_of_teardowns_at_once_is_limited(
    store: Store, kernel: Kernel, tmp_path: Path, plugins: int, most: int
) -> None:
    """After a reboot, when all are pending, as many run at once as plugins may run, four at least."""
    crowd = Crowd(expected=most)
    for number in range(most + 20):
        await put(store, endpoint(f"{number:064x}", Phase.PENDING))
    teardowns = make_queue(store, kernel, tmp_path / "run", crowd.teardown(), plugins=plugins)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:  # only to end a test that fails
        assert await unfinished(store, teardowns, kernel, tmp_path).add() == most + 20
        running = tasks.create_task(teardowns.run())
        await teardowns.wait_tried()
        running.cancel()
    assert store.endpoints() == ()
    assert crowd.most == most


class Paced(Slow):
    """Teardowns that take a quarter of a second, one after the other."""

    turn: ClassVar[asyncio.Lock]

    async def __call__(self, record: EndpointRecord) -> None:
        """Wait for the turn, take a while, and remove the record."""
        async with self.turn:
            await asyncio.sleep(0.25)
            await super().__call__(record)


class Stepwise(Slow):
    """A teardown of four plugins, of which each takes half a second, and the first ones fail or are killed."""

    journal: ClassVar[Journal]
    outcome: ClassVar[str]

    async def __call__(self, record: EndpointRecord) -> None:
        """Report each execution."""
        for _ in range(4):
            await asyncio.sleep(0.5)
            executed = Execution(
                plugin="bridge", verb=Verb.DEL, container_id=record.id, outcome=self.outcome, duration_s=0.5
            )
            self.journal.on_execution(executed)
        await super().__call__(record)


class Last(Slow):
    """Teardowns of which only one completes, and the others hang."""

    async def __call__(self, record: EndpointRecord) -> None:
        """Hang for all endpoints but the second."""
        if record.id != SECOND:
            await asyncio.Event().wait()
        await super().__call__(record)


async def waited(
    store: Store, kernel: Kernel, directory: Path, teardown: type[Teardown], *, boot_limit_s: float
) -> tuple[EndpointRecord, ...]:
    """Start the daemon's recovery with a limit of a second; return the endpoints that are left when calls begin."""
    teardowns = make_queue(store, kernel, directory / "run", teardown)
    journal = Stepwise.journal = Journal()
    store.when_phase_changed(journal.on_phase)
    recovery = unfinished(store, teardowns, kernel, directory, journal=journal, limit_s=1.0, boot_limit_s=boot_limit_s)
    await recovery.add()
    async with running(teardowns):
        await recovery.wait()
        return store.endpoints()


@pytest.mark.parametrize(("boot", "boot_limit_s"), [("earlier", 3600.0), ("earlier", 1.0), (BOOT, 3600.0)])
async def test_how_long_calls_wait(
    store: Store, kernel: Kernel, tmp_path: Path, boot: str, boot_limit_s: float
) -> None:
    """After a reboot until all are torn down, or the longer limit; without one, for the usual limit."""
    Paced.turn = asyncio.Lock()
    for number in range(8):
        await put(store, endpoint(f"{number:064x}", Phase.PENDING, boot_id=boot))
    left = await waited(store, kernel, tmp_path, Paced, boot_limit_s=boot_limit_s)
    assert (left == ()) == (boot != BOOT and boot_limit_s > 1.0)


@pytest.mark.parametrize(("outcome", "is_progress"), [("PluginFailed", True), ("PluginTimeout", False)])
async def test_a_teardown_of_many_steps_after_a_reboot(
    store: Store, kernel: Kernel, tmp_path: Path, outcome: str, is_progress: bool
) -> None:
    """Calls wait for it, although no teardown completes for a while: plugins end, and are not killed."""
    Stepwise.outcome = outcome
    await put(store, endpoint(FIRST, Phase.READY, boot_id="earlier"))
    left = await waited(store, kernel, tmp_path, Stepwise, boot_limit_s=3600.0)
    assert (left == ()) == is_progress


async def test_a_plugin_that_hangs_after_a_reboot(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Calls are answered although it has not completed, as soon as no other teardown has for a while."""
    for endpoint_id in (FIRST, SECOND):
        await put(store, endpoint(endpoint_id, Phase.READY, boot_id="earlier"))
    left = await waited(store, kernel, tmp_path, Last, boot_limit_s=3600.0)
    assert [record.id for record in left] == [FIRST]
