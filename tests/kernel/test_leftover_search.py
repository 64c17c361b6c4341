# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The search for leftovers: what is left of endpoints without a record, and of no other container."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import pin_path
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.recovery.leftovers import LeftoverFinder
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel, Sandboxes, is_namespace
from cnm_bridge.system.kernel.netns import NamespaceId
from cnm_bridge.system.scheduling import KeyedLocks
from tests.kernel.namespace import Namespace
from tests.records import endpoint, put

RESERVATIONS: Final = Path("/var/lib/cni/networks")
OURS, UNKNOWN = "1" * 64, "2" * 64


class UnreadSandbox(Kernel):
    """One more sandbox cannot be read; everything else is real."""

    is_unread = True

    async def look_into_sandboxes(self, known: Iterable[str] = ()) -> Sandboxes:
        """Return what is in the others."""
        seen = await super().look_into_sandboxes(known)
        return replace(seen, unread={NamespaceId(device=1, inode=1): "it changes"}) if self.is_unread else seen


@pytest.fixture(autouse=True)
def nothing_left_in_cni_directories(private_namespaces: int) -> Iterator[None]:
    """Remove what tests leave below `/var/lib/cni`, which is mounted for the tests only."""
    assert private_namespaces
    yield
    shutil.rmtree(RESERVATIONS, ignore_errors=True)


def finder(store: Store, kernel: Kernel, run_dir: Path) -> LeftoverFinder:
    """Make the object under test; nothing is asked of lists and teardowns."""
    return LeftoverFinder(
        store=store,
        lists=cast("NetworkLists", None),
        kernel=kernel,
        teardowns=cast("TeardownQueue", None),
        locks=KeyedLocks(),
        run_dir=run_dir,
        boot_id="",
    )


def reserve(directory: Path, address: str, container_id: str) -> str:
    """Reserve an address as host-local does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / address).write_text(f"{container_id}\r\neth0")
    return str(directory / address)


async def test_unwritten_reservations(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """They are found in the directories of records, of the present list, and in the default one."""
    now: JsonObject = {"plugins": [{"type": "ptp", "ipam": {"dataDir": str(tmp_path / "now")}}]}
    await put(store, endpoint(OURS, ipam={"type": "host-local", "dataDir": str(tmp_path / "then")}))
    search = finder(store, kernel, tmp_path / "run")
    left = set()
    for directory in (RESERVATIONS, tmp_path / "then", tmp_path / "now"):
        reserve(directory / "lan", "10.1.2.3", OURS)
        for network, address in (("lan", "10.1.2.4"), ("other", "10.1.2.5")):
            (directory / network).mkdir(exist_ok=True)
            (directory / network / address).touch()
        left.add(directory / "lan" / "10.1.2.4")
    assert set(await search.find_unwritten(["lan"], [now])) == left


async def test_reservations_of_other_containers(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """They are no leftovers: they may be another runtime's."""
    reserve(RESERVATIONS / "lan", "10.1.2.3", UNKNOWN)
    reserve(RESERVATIONS / "lan", "10.1.2.4", "podman")
    assert await finder(store, kernel, tmp_path / "run").find(["lan"]) == {}


async def test_a_sandbox_that_cannot_be_read(store: Store, tmp_path: Path) -> None:
    """The link may be there, in a running container, so nothing is removed before the next look."""
    kernel = UnreadSandbox(reply_limit_s=5.0)
    run_dir = tmp_path / "run"
    pin = pin_path(run_dir, AttachmentId(OURS))
    await kernel.create_staging(pin)
    search = finder(store, kernel, run_dir)
    (leftovers,) = (await search.find([])).values()
    await search.remove(leftovers)
    assert is_namespace(pin)
    kernel.is_unread = False
    await search.remove(leftovers)
    assert not is_namespace(pin)


async def test_names_without_an_endpoint_id(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """A link or a file is not a leftover unless its name contains an endpoint ID, whatever it begins with."""
    staging = tmp_path / "run" / "netns"
    staging.mkdir(parents=True)
    (staging / "notes.txt").touch()
    (staging / UNKNOWN).touch()
    host.ip("link add marked type veth peer name other")
    host.ip("link property add dev marked altname cni-bridge-uplink")
    leftovers = await finder(store, kernel, tmp_path / "run").find([])
    assert {found.attachment_id for found in leftovers.values()} == {UNKNOWN}
    host.ip(f"link property add dev marked altname cni-bridge-{OURS}")
    leftovers = await finder(store, kernel, tmp_path / "run").find([])
    assert {found.attachment_id for found in leftovers.values()} == {UNKNOWN, OURS}
    host.ip("link del marked")


async def test_an_endpoint_of_another_instance(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """Its link and its reservation are no leftovers while its staging namespace is mounted."""
    search = finder(store, kernel, tmp_path / "run")
    host.ip("link add theirs type veth peer name other")
    host.ip(f"link property add dev theirs altname cni-bridge-{UNKNOWN}")
    file = reserve(RESERVATIONS / "lan", "10.1.2.3", UNKNOWN)
    staging = tmp_path / "run-blue" / "netns" / UNKNOWN
    await kernel.create_staging(staging)
    assert await search.find(["lan"]) == {}
    await kernel.remove_staging(staging)
    (leftovers,) = (await search.find(["lan"])).values()
    assert leftovers.attachment_id == UNKNOWN
    assert [artifact.what for artifact in leftovers.artifacts] == [file]
    host.ip("link del theirs")


async def test_an_endpoint_that_is_created_during_a_search(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has is no leftover, although its record did not exist when the search began."""
    for name in ("iptables-save", "ip6tables-save"):
        waits = tmp_path / "bin" / name
        waits.parent.mkdir(exist_ok=True)
        waits.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\n")
        waits.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    search = finder(store, kernel, tmp_path / "run")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(20):
        task = tasks.create_task(search.find(["lan"]))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110  # a file is polled
            await asyncio.sleep(0.02)
        await put(store, endpoint(OURS))
        reserve(RESERVATIONS / "lan", "10.1.2.3", OURS)
        (tmp_path / "go").touch()
        assert await task == {}
