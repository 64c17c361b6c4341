# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What belongs to no record, and whose it may be."""

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.kernel import Kernel
from cnm_bridge.recovery.artifacts import chain_names, ifb_name
from cnm_bridge.recovery.orphans import OrphanAudit
from spec import JsonObject
from state import Store
from tests.kernel.namespace import Namespace
from tests.kernel.records import endpoint, put

RESERVATIONS: Final = Path("/var/lib/cni/networks")
RESULTS: Final = Path("/var/lib/cni/results")
CRI_DOCKERD_RESULTS: Final = Path("/var/lib/cni/cache/results")
OURS, STRANGE = "1" * 64, "2" * 64


@pytest.fixture(autouse=True)
def nothing_left_in_cni_directories(private_namespaces: int) -> Iterator[None]:
    """Remove what tests leave below `/var/lib/cni`, which is a private one."""
    assert private_namespaces
    yield
    for directory in (RESERVATIONS, RESULTS, CRI_DOCKERD_RESULTS):
        shutil.rmtree(directory, ignore_errors=True)


def reserve(directory: Path, address: str, container_id: str) -> str:
    """Reserve an address as host-local does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / address).write_text(f"{container_id}\r\neth0")
    return str(directory / address)


async def look_twice(audit: OrphanAudit) -> None:
    """Look at the network `lan` until nothing is in doubt."""
    await audit.look(["lan"])
    assert audit.orphans == ()
    assert audit.is_in_doubt
    await audit.look(["lan"])
    assert not audit.is_in_doubt


async def test_what_one_look_sees(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """Another runtime is creating or removing it; what has gone by the next look is not reported."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    for _ in range(2):
        reserve(RESERVATIONS / "lan", "10.1.2.3", "somebody")
        await audit.look(["lan"])
        shutil.rmtree(RESERVATIONS)
        await audit.look(["lan"])
        assert audit.orphans == ()
        assert not audit.is_in_doubt


async def test_reservations_of_nobody(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """They are told, in every place that a list has or had: of a record, of the list as it is now, and the default."""
    now: JsonObject = {"plugins": [{"type": "ptp", "ipam": {"dataDir": str(tmp_path / "now")}}]}
    await put(store, endpoint(OURS, ipam={"type": "host-local", "dataDir": str(tmp_path / "then")}))
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    left = set()
    for place in (RESERVATIONS, tmp_path / "then", tmp_path / "now"):
        reserve(place / "lan", "10.1.2.3", OURS)
        left.add(reserve(place / "lan", "10.1.2.4", "somebody"))
        reserve(place / "other", "10.1.2.5", "somebody")
    for _ in range(2):
        assert await audit.look(["lan"], [now]) == {}
    assert {orphan.what for orphan in audit.orphans} == left


async def test_what_another_runtime_has_noted(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is that runtime's, if it has noted exactly this; names are no patterns."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    RESULTS.mkdir()
    (RESULTS / "lan-podman-eth0").touch()
    (RESULTS / "lan-podman2").touch()
    (RESULTS / "lanX-seven-eth0").touch()
    reserve(RESERVATIONS / "lan", "10.1.2.3", "podman")
    left = {
        reserve(RESERVATIONS / "lan", f"10.1.2.{number}", name)
        for number, name in enumerate(["podman2", "pod", "*", "[p]odman", "seven"], start=4)
    }
    await look_twice(audit)
    assert {orphan.what for orphan in audit.orphans} == left


async def test_names_that_are_not_endpoints(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """A link or a file whose name is no ID of Docker's is an operator's, whatever it begins with."""
    staging = tmp_path / "run" / "netns"
    staging.mkdir(parents=True)
    (staging / "notes.txt").touch()
    (staging / STRANGE).touch()
    host.ip("link add marked type veth peer name other")
    host.ip("link property add dev marked altname cni-bridge-uplink")
    remains = await OrphanAudit(store, kernel, tmp_path / "run").look([])
    assert {found.attachment_id for found in remains.values()} == {STRANGE}
    host.ip(f"link property add dev marked altname cni-bridge-{OURS}")
    remains = await OrphanAudit(store, kernel, tmp_path / "run").look([])
    assert {found.attachment_id for found in remains.values()} == {STRANGE, OURS}
    host.ip("link del marked")


async def test_what_limits_the_bandwidth_of_nobody(
    store: Store, kernel: Kernel, host: Namespace, tmp_path: Path
) -> None:
    """Its name tells whose it is to those who know all the others: of a record, and noted by another runtime."""
    record = endpoint(OURS)
    await put(store, record)
    RESULTS.mkdir()
    (RESULTS / "lan-podman-eth0").touch()
    names = {whose: ifb_name("lan", whose) for whose in (OURS, "podman", "nobody")}
    host.ip(*(f"link add {name} type ifb" for name in names.values()), "link add ifb7 type ifb")
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    await look_twice(audit)
    assert [orphan.what for orphan in audit.orphans] == [f"link {names['nobody']} (ifb)"]
    host.ip(*(f"link del {name}" for name in (*names.values(), "ifb7")))


async def test_chains_of_nobody(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """One without rules was made for a container that only its name tells."""
    await put(store, endpoint(OURS))
    RESULTS.mkdir()
    (RESULTS / "lan-podman-eth0").touch()
    CRI_DOCKERD_RESULTS.mkdir(parents=True)
    (CRI_DOCKERD_RESULTS / "k8s-pod-eth0").touch()
    chains = {whose: sorted(chain_names("lan", whose)) for whose in (OURS, "podman", "nobody")}
    chains["pod"] = sorted(chain_names("k8s", "pod"))
    for name in itertools.chain(*chains.values()):
        host.run(f"iptables -t nat -N {name}")
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    await look_twice(audit)
    assert [orphan.what for orphan in audit.orphans] == [f"iptables -t nat -N {name}" for name in chains["nobody"]]
    for name in itertools.chain(*chains.values()):
        host.run(f"iptables -t nat -X {name}")


async def test_an_endpoint_that_is_made_meanwhile(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reservation is there when the records are read for the first time, or not; it is nobody's at no time."""
    for name in ("iptables-save", "ip6tables-save"):
        waits = tmp_path / "bin" / name
        waits.parent.mkdir(exist_ok=True)
        waits.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\n")
        waits.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(20):
        looking = tasks.create_task(audit.look(["lan"]))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110  # a file is polled
            await asyncio.sleep(0.02)
        await put(store, endpoint(OURS))
        reserve(RESERVATIONS / "lan", "10.1.2.3", OURS)
        (tmp_path / "go").touch()
        assert await looking == {}
    assert audit.orphans == ()
