# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoints are torn down when: orphaned plugins, sandboxes that cannot be read, and slots."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from structlog.testing import capture_logs

from cni_bridge_state import AttachmentId, EndpointId, Phase
from cni_bridge_state.store import Store
from cni_invoker.errors import PluginStillRuns
from cnm_bridge.driver.teardown import teardown
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import Pending, TeardownSlots
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins
from cnm_bridge.system.kernel import Kernel, Sandboxes
from cnm_bridge.system.kernel.netns import NamespaceId
from tests.records import endpoint, put
from tests.unit.cni_invoker.processes import wait_until

ONE, TWO = AttachmentId(f"{os.getpid():064x}"), AttachmentId(f"{os.getpid():063x}f")


@pytest.fixture(name="plugin")
def start_plugin(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that looks like a plugin for the first endpoint, whose runtime no longer runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"],
        env={"INVOKED_EXECUTION": "1-0-0"},
        start_new_session=True,
    )
    # The kernel shows the environment a moment after the program has begun.
    wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes() != b"")
    (tmp_path / "1-0-0").write_text(f"{ONE} ADD bridge\n")
    yield process
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()


async def test_an_endpoint_with_an_unkillable_plugin_is_refused(
    plugin: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other endpoints are accepted; once the plugin can be killed, the endpoint is accepted too."""
    plugins = OrphanedPlugins(tmp_path)
    monkeypatch.setattr(teardown, "_ORPHANS_LIMIT_S", 0.5)
    with monkeypatch.context() as kernel:
        kernel.setattr(signal, "pidfd_send_signal", lambda *_: None)  # as for a process that hangs in the kernel
        await plugins.kill()
        await plugins.ensure_none(TWO)
        with pytest.raises(PluginStillRuns, match=f"process {plugin.pid} "):
            await plugins.ensure_none(ONE)
    await plugins.ensure_none(ONE)
    assert plugin.wait() == -signal.SIGKILL
    await plugins.ensure_none(ONE)


async def test_an_orphaned_plugin_is_killed(plugin: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """It is killed before any teardown runs."""
    plugins = OrphanedPlugins(tmp_path)
    await plugins.kill()
    assert plugin.wait() == -signal.SIGKILL
    await plugins.ensure_none(ONE)


OTHER = NamespaceId(device=1, inode=1)
RECORD = replace(endpoint("e" * 64), sandbox_key="/run/docker/netns/1")


@dataclass(frozen=True, slots=True)
class OneUnread:
    """Stands in for a host with one sandbox, which is at some paths and cannot be read."""

    paths: tuple[str, ...] = ()

    async def look_into_sandboxes(self, _: Iterable[str] = ()) -> Sandboxes:
        """Return nothing but that."""
        return Sandboxes(
            links={},
            addresses=frozenset(),
            ids=dict.fromkeys(self.paths, OTHER),
            unread={OTHER: "it changes"},
            lost=frozenset(),
            inhabited=None,
        )


async def test_a_sandbox_that_cannot_be_read(store: Store) -> None:
    """It says nothing about an endpoint that has another one."""
    assert await Liveness(store, cast("Kernel", OneUnread())).find_in_use([RECORD]) == frozenset()


async def test_an_endpoint_in_use_is_logged_once(store: Store) -> None:
    """And again after its record has been removed."""
    liveness = Liveness(store, cast("Kernel", OneUnread(("/run/docker/netns/1",))))
    with capture_logs() as logs:
        for _ in range(2):
            await put(store, RECORD)
            for _ in range(2):
                assert await liveness.without_in_use([RECORD]) == ()
            await store.put_endpoint(replace(RECORD, phase=Phase.DELETING))
            await store.remove_endpoint(RECORD.id)
    assert [one["event"] for one in logs] == ["endpoint.in_use"] * 2


PLUGINS = 4
SLOTS = PLUGINS
SLOTS_OF_HUNG = PLUGINS // 2


def teardowns_of(*numbers: int) -> list[Pending]:
    """Return pending teardowns."""
    return [Pending(key=EndpointId(f"{number:064x}")) for number in numbers]


@asynccontextmanager
async def run_teardowns() -> AsyncIterator["Teardowns"]:
    """Yield an object that starts teardowns; those that still run are cancelled at the end."""
    async with asyncio.TaskGroup() as group:
        teardowns = Teardowns(group)
        yield teardowns
        await teardowns.end()


class Teardowns:
    """Teardowns with one plugin each, which runs until the end of the test.

    Attributes:
        running: The teardowns whose plugin runs, in the order in which they began.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.slots = TeardownSlots(PLUGINS)
        self.running: list[Pending] = []
        self._group = group
        self._tasks: dict[Pending, asyncio.Task[None]] = {}

    async def begin(self, teardowns: Iterable[Pending], network: str = "lan") -> None:
        """Start some teardowns, and run all of them until they wait."""
        for pending in teardowns:
            self._tasks[pending] = self._group.create_task(self._run(pending, network))
        await self.run_until_blocked()

    async def run_until_blocked(self) -> None:
        """Run all teardowns until they wait."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self, *teardowns: Pending) -> None:
        """Cancel some teardowns, or all."""
        tasks = [self._tasks.pop(pending) for pending in teardowns or tuple(self._tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.run_until_blocked()

    async def _run(self, pending: Pending, network: str) -> None:
        async with self.slots.take(pending, network):
            self.running.append(pending)
            await asyncio.Event().wait()


async def test_preferred_teardowns_have_slots_of_their_own() -> None:
    """Teardowns that hang for the first time take all slots, except those of teardowns that a call waits for."""
    async with run_teardowns() as teardowns:
        many, new = teardowns_of(*range(100)), teardowns_of(100)
        await teardowns.begin(many)
        assert teardowns.running == many[:SLOTS]
        teardowns.slots.prefer([many[-1]])  # it waits to start
        await teardowns.run_until_blocked()
        teardowns.slots.prefer(new)
        await teardowns.begin(new)
        assert teardowns.running[SLOTS:] == [many[-1], *new]


@pytest.mark.parametrize("preferred", [False, True])
async def test_teardowns_that_hang_on_one_network_leave_slots_to_others(preferred: bool) -> None:
    """They hang for the first time, and calls wait for all of them, or for none."""
    async with run_teardowns() as teardowns:
        hanging, (other,) = teardowns_of(*range(100)), teardowns_of(100)
        if preferred:
            teardowns.slots.prefer([*hanging, other])
        await teardowns.begin(hanging)
        assert len(teardowns.running) == SLOTS * (2 if preferred else 1)
        await teardowns.begin([other], "other")
        assert teardowns.running[-1] == other


async def test_teardowns_that_hung_before_take_a_part_of_the_slots() -> None:
    """However many they are, and even if a call waits for them, the others are free."""
    async with run_teardowns() as teardowns:
        hung = teardowns_of(*range(100))
        for pending in hung:
            pending.has_hung = True
        teardowns.slots.prefer(hung)
        await teardowns.begin(hung)
        assert teardowns.running == hung[:SLOTS_OF_HUNG]
        others = teardowns_of(*range(100, 200))
        await teardowns.begin(others)
        assert teardowns.running[SLOTS_OF_HUNG:] == others[: SLOTS - SLOTS_OF_HUNG]


async def test_a_preference_lasts_for_one_attempt() -> None:
    """The next attempt of the same teardown waits like all others."""
    async with run_teardowns() as teardowns:
        first, *others = teardowns_of(*range(3 * SLOTS))
        teardowns.slots.prefer([first])
        await teardowns.begin([first])
        await teardowns.end(first)
        await teardowns.begin([*others, first])
        assert teardowns.running == [first, *others[:SLOTS]]
