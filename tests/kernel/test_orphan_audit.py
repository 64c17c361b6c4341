# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The audit for orphans: artifacts of plugins that belong to no record and to no other runtime."""

import asyncio
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.recovery.artifacts import chain_names, ifb_name
from cnm_bridge.driver.recovery.orphan_audit import OrphanAudit
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.records import endpoint, put

RESERVATIONS: Final = Path("/var/lib/cni/networks")
RESULTS: Final = Path("/var/lib/cni/results")
CRI_DOCKERD_RESULTS: Final = Path("/var/lib/cni/cache/results")
OURS, UNKNOWN = "1" * 64, "2" * 64


@pytest.fixture(autouse=True)
def nothing_left_in_cni_directories(private_namespaces: int) -> Iterator[None]:
    """Remove what tests leave below `/var/lib/cni`, which is mounted for the tests only."""
    assert private_namespaces
    yield
    for directory in (RESERVATIONS, RESULTS, CRI_DOCKERD_RESULTS):
        shutil.rmtree(directory, ignore_errors=True)


def reserve(directory: Path, address: str, container_id: str) -> str:
    """Reserve an address as host-local does."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / address).write_text(f"{container_id}\r\neth0")
    return str(directory / address)


async def audit_twice(audit: OrphanAudit) -> None:
    """Audit the network `lan` twice: an artifact is reported only when two audits find it."""
    await audit.scan(["lan"])
    assert audit.orphans == ()
    assert audit.has_unconfirmed
    await audit.scan(["lan"])
    assert not audit.has_unconfirmed


async def test_an_artifact_that_only_one_audit_finds(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is not reported: another runtime was just creating or removing it."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    for _ in range(2):
        reserve(RESERVATIONS / "lan", "10.1.2.3", "unknown")
        await audit.scan(["lan"])
        shutil.rmtree(RESERVATIONS)
        await audit.scan(["lan"])
        assert audit.orphans == ()
        assert not audit.has_unconfirmed


async def test_unowned_reservations(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """They are reported in the directories of records, of the present list, and in the default one."""
    now: JsonObject = {"plugins": [{"type": "ptp", "ipam": {"dataDir": str(tmp_path / "now")}}]}
    await put(store, endpoint(OURS, ipam={"type": "host-local", "dataDir": str(tmp_path / "then")}))
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    left = set()
    for directory in (RESERVATIONS, tmp_path / "then", tmp_path / "now"):
        reserve(directory / "lan", "10.1.2.3", OURS)
        left.add(reserve(directory / "lan", "10.1.2.4", "unknown"))
        reserve(directory / "other", "10.1.2.5", "unknown")
    for _ in range(2):
        assert await audit.scan(["lan"], [now]) == {}
    assert {orphan.what for orphan in audit.orphans} == left


async def test_reservations_of_another_runtime(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """A reservation is another runtime's if its results name exactly this container; names are not patterns."""
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
    await audit_twice(audit)
    assert {orphan.what for orphan in audit.orphans} == left


async def test_what_a_teardown_has_left(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is a leftover, which the daemon removes, once: if another teardown does not help, it is reported."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    for _ in range(2):  # another attempt for the same endpoint is torn down, too
        await put(store, endpoint(OURS, Phase.READY))
        await store.put_endpoint(endpoint(OURS, Phase.DELETING))
        assert await audit.scan(["lan"]) == {}
        await store.remove_endpoint(EndpointId(OURS))
    file = reserve(RESERVATIONS / "lan", "10.1.2.3", OURS)
    (found,) = (await audit.scan(["lan"])).values()
    assert [artifact.what for artifact in found.artifacts] == [file]
    await store.put_found_endpoint(endpoint(OURS, Phase.DELETING))  # for its DEL
    await store.remove_endpoint(EndpointId(OURS))
    for _ in range(2):
        assert await audit.scan(["lan"]) == {}
    assert [orphan.what for orphan in audit.orphans] == [file]


async def test_what_no_plugin_can_remove(store: Store, kernel: Kernel, tmp_path: Path) -> None:
    """It is reported, so that an operator can release it."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    await put(store, endpoint(OURS, Phase.READY))
    await store.put_endpoint(endpoint(OURS, Phase.DELETING))
    await store.remove_endpoint(EndpointId(OURS))
    file = reserve(RESERVATIONS / "lan", "10.1.2.3", OURS)
    assert await audit.scan(["lan"]) != {}
    audit.disown(AttachmentId(OURS))
    await audit_twice(audit)
    assert [orphan.what for orphan in audit.orphans] == [file]


async def test_names_without_an_endpoint_id(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """A link or a file is not a leftover unless its name contains an endpoint ID, whatever it begins with."""
    staging = tmp_path / "run" / "netns"
    staging.mkdir(parents=True)
    (staging / "notes.txt").touch()
    (staging / UNKNOWN).touch()
    host.ip("link add marked type veth peer name other")
    host.ip("link property add dev marked altname cni-bridge-uplink")
    leftovers = await OrphanAudit(store, kernel, tmp_path / "run").scan([])
    assert {found.attachment_id for found in leftovers.values()} == {UNKNOWN}
    host.ip(f"link property add dev marked altname cni-bridge-{OURS}")
    leftovers = await OrphanAudit(store, kernel, tmp_path / "run").scan([])
    assert {found.attachment_id for found in leftovers.values()} == {UNKNOWN, OURS}
    host.ip("link del marked")


async def test_an_endpoint_of_another_instance(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """Its link, reservation and chain are neither leftovers nor orphans while its staging namespace is mounted."""
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    host.ip("link add theirs type veth peer name other")
    host.ip(f"link property add dev theirs altname cni-bridge-{UNKNOWN}")
    host.ip(f"link add {ifb_name('lan', UNKNOWN)} type ifb")
    file = reserve(RESERVATIONS / "lan", "10.1.2.3", UNKNOWN)
    staging = tmp_path / "run-blue" / "netns" / UNKNOWN
    await kernel.create_staging(staging)
    for _ in range(2):
        assert await audit.scan(["lan"]) == {}
    assert audit.orphans == ()
    await kernel.remove_staging(staging)
    (leftovers,) = (await audit.scan(["lan"])).values()
    assert leftovers.attachment_id == UNKNOWN
    assert [artifact.what for artifact in leftovers.artifacts] == [file]
    host.ip("link del theirs", f"link del {ifb_name('lan', UNKNOWN)}")


async def test_unowned_ifb_links(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """An ifb link is an orphan if its name, a digest, matches no record and no result of another runtime."""
    record = endpoint(OURS)
    await put(store, record)
    RESULTS.mkdir()
    (RESULTS / "lan-podman-eth0").touch()
    names = {whose: ifb_name("lan", whose) for whose in (OURS, "podman", "unowned")}
    host.ip(*(f"link add {name} type ifb" for name in names.values()), "link add ifb7 type ifb")
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    await audit_twice(audit)
    assert [orphan.what for orphan in audit.orphans] == [f"link {names['unowned']} (ifb)"]
    host.ip(*(f"link del {name}" for name in (*names.values(), "ifb7")))


async def test_unowned_chains(store: Store, kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """An empty chain is an orphan if its name, a digest, matches no record and no result of another runtime."""
    await put(store, endpoint(OURS))
    RESULTS.mkdir()
    (RESULTS / "lan-podman-eth0").touch()
    CRI_DOCKERD_RESULTS.mkdir(parents=True)
    (CRI_DOCKERD_RESULTS / "k8s-pod-eth0").touch()
    chains = {whose: sorted(chain_names("lan", whose)) for whose in (OURS, "podman", "unowned")}
    chains["pod"] = sorted(chain_names("k8s", "pod"))
    for name in itertools.chain(*chains.values()):
        host.run(f"iptables -t nat -N {name}")
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    await audit_twice(audit)
    assert [orphan.what for orphan in audit.orphans] == [f"iptables -t nat -N {name}" for name in chains["unowned"]]
    for name in itertools.chain(*chains.values()):
        host.run(f"iptables -t nat -X {name}")


async def test_an_endpoint_that_is_created_during_an_audit(
    store: Store, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reservation is never taken for an orphan, although its record did not exist when the audit began."""
    for name in ("iptables-save", "ip6tables-save"):
        waits = tmp_path / "bin" / name
        waits.parent.mkdir(exist_ok=True)
        waits.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\n")
        waits.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    audit = OrphanAudit(store, kernel, tmp_path / "run")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(20):
        audit_task = tasks.create_task(audit.scan(["lan"]))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110  # a file is polled
            await asyncio.sleep(0.02)
        await put(store, endpoint(OURS))
        reserve(RESERVATIONS / "lan", "10.1.2.3", OURS)
        (tmp_path / "go").touch()
        assert await audit_task == {}
    assert audit.orphans == ()
