# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoints are dead: the kernel shows that their container no longer exists."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_state import AttachMode, EndpointRecord, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import alternative_name, host_link_name
from cnm_bridge.core.errors import KernelError
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.records import endpoint

RECORD = endpoint("e" * 64)
RESERVED = replace(RECORD, phase=Phase.READY, attachment=replace(RECORD.attachment, mode=AttachMode.HYBRID))
LOST = ProcessRecord(pid=2**22 + 1, started=1)
"""A process that does not exist: its number is above the kernel's limit."""
NAME, ALTNAME = host_link_name(RECORD.attachment.id), alternative_name(RECORD.attachment.id)


@pytest.fixture
def processes(tmp_path: Path, inhabitant: Path) -> Path:
    """A directory like /proc with this process and that of `inhabited`: a machine need not show all of its own."""
    for process in (Path("/proc/self").resolve(), inhabitant):
        (tmp_path / process.name).symlink_to(process)
    return tmp_path


@pytest.fixture(name="liveness")
def make_liveness(store: Store, processes: Path) -> Liveness:
    """What is under test, with a kernel that sees only these processes."""
    return Liveness(store, Kernel(reply_limit_s=5.0, processes=processes))


def add_link(namespace: Namespace) -> None:
    """Make the endpoint's link."""
    namespace.ip(f"link add {NAME} type veth peer name peer", f"link property add dev {NAME} altname {ALTNAME}")


async def is_dead(liveness: Liveness, record: EndpointRecord = RECORD) -> bool:
    """Return whether the endpoint counts as dead."""
    return await liveness.find_without_container([record]) == (record,)


async def test_a_link_in_a_sandbox_with_a_process(liveness: Liveness, inhabited: Namespace) -> None:
    """The endpoint is not dead, whether its record has the sandbox or not."""
    add_link(inhabited)
    assert not await is_dead(liveness)
    assert not await is_dead(liveness, replace(RECORD, sandbox_key=str(inhabited.path)))


async def test_a_link_in_the_sandbox_of_another_endpoint(
    liveness: Liveness, inhabited: Namespace, sandbox: Namespace
) -> None:
    """A container may give its links any alternative name: only the endpoint's own sandbox counts."""
    add_link(inhabited)
    assert await is_dead(liveness, replace(RECORD, sandbox_key=str(sandbox.path)))


async def test_a_running_container_without_its_link(liveness: Liveness, inhabited: Namespace) -> None:
    """An endpoint whose link was deleted is not dead while a process lives in its sandbox."""
    assert not await is_dead(liveness, replace(RECORD, sandbox_key=str(inhabited.path)))


async def test_a_link_in_a_sandbox_without_a_process(liveness: Liveness, sandbox: Namespace) -> None:
    """A killed dockerd left the sandbox mounted: the endpoint is dead."""
    add_link(sandbox)
    assert await is_dead(liveness, replace(RECORD, sandbox_key=str(sandbox.path)))
    sandbox.ip(f"link delete {NAME}")


async def test_a_link_in_the_host_namespace(liveness: Liveness, host: Namespace) -> None:
    """Docker is about to move the link, or has moved it back: the endpoint is not dead."""
    add_link(host)
    assert not await is_dead(liveness)
    host.ip(f"link delete {NAME}")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (replace(RECORD, phase=Phase.READY), True),
        (replace(RECORD, first_process=LOST), True),
        (RECORD, False),  # before Engine 28 the sandbox is made after Join
    ],
    ids=["after Leave", "after the container's end", "before the sandbox exists"],
)
async def test_a_link_in_the_host_namespace_without_a_sandbox(
    liveness: Liveness, host: Namespace, tmp_path: Path, record: EndpointRecord, *, expected: bool
) -> None:
    """Docker has removed the sandbox, so it has deleted the endpoint, too; the daemon was being killed."""
    add_link(host)
    assert await is_dead(liveness, replace(record, sandbox_key=str(tmp_path / "gone"))) is expected
    host.ip(f"link delete {NAME}")


async def test_a_link_in_the_host_namespace_after_the_end_of_the_engine(liveness: Liveness, host: Namespace) -> None:
    """The endpoint is dead, joined or not, even if another process has the engine's process ID by now."""
    started = liveness.kernel.find_start(os.getpid())
    assert started is not None
    add_link(host)
    for phase in (Phase.READY, Phase.JOINED):
        record = replace(RECORD, phase=phase, sandbox_key="/var/run/docker/netns/gone")
        assert not await is_dead(liveness, replace(record, caller=ProcessRecord(pid=os.getpid(), started=started)))
        for pid in (os.getpid(), LOST.pid):
            assert await is_dead(liveness, replace(record, caller=ProcessRecord(pid=pid, started=started - 1)))
    host.ip(f"link delete {NAME}")


async def test_a_caller_that_has_ended_without_a_join(liveness: Liveness, host: Namespace) -> None:
    """Nothing is concluded: each call may come from a process of its own, as through a proxy that forks."""
    add_link(host)
    assert not await is_dead(liveness, replace(RECORD, phase=Phase.READY, caller=LOST))
    host.ip(f"link delete {NAME}")
    assert not await is_dead(liveness, replace(RESERVED, caller=LOST))


async def test_a_reservation_of_an_engine_that_has_ended(liveness: Liveness) -> None:
    """It is dead if another endpoint shows that the caller was no proxy that forks: it has sent a Join, too."""
    reserved = replace(RESERVED, caller=LOST)
    beside = replace(endpoint("d" * 64), caller=LOST, sandbox_key="/var/run/docker/netns/gone")
    assert await liveness.find_without_container([reserved, beside]) == (reserved, beside)


async def test_a_container_whose_processes_have_left_its_sandbox(liveness: Liveness, sandbox: Namespace) -> None:
    """Its first process may be in another namespace, as with a VPN: as long as it lives, the container runs."""
    started = liveness.kernel.find_start(os.getpid())
    assert started is not None
    for record in (RECORD, replace(RESERVED, phase=Phase.JOINED)):
        joined = replace(record, sandbox_key=str(sandbox.path))
        running = replace(joined, first_process=ProcessRecord(pid=os.getpid(), started=started))
        assert not await is_dead(liveness, running)
        assert await is_dead(liveness, replace(running, first_process=LOST))


async def test_a_link_in_the_host_namespace_while_the_container_runs(
    liveness: Liveness, host: Namespace, inhabited: Namespace
) -> None:
    """The next dockerd makes the container leave its networks and join them again (`Sandbox.Refresh`)."""
    add_link(host)
    assert not await is_dead(liveness, replace(RECORD, caller=LOST, sandbox_key=str(inhabited.path)))
    host.ip(f"link delete {NAME}")


async def test_a_running_container_after_the_end_of_the_engine(liveness: Liveness, inhabited: Namespace) -> None:
    """Live-restore: the endpoint is not dead, as the next dockerd takes the container over."""
    add_link(inhabited)
    lost = replace(RECORD, caller=LOST, sandbox_key=str(inhabited.path))
    assert not await is_dead(liveness, lost)
    assert not await is_dead(liveness, replace(lost, phase=Phase.READY))


async def test_a_link_that_no_longer_exists(liveness: Liveness, host: Namespace) -> None:
    """A joined endpoint whose link exists nowhere is dead: the link was destroyed with the container."""
    assert host.links() == set()
    assert await is_dead(liveness)


async def test_a_process_that_cannot_be_examined(liveness: Liveness, processes: Path) -> None:
    """Liveness is an error then: the link may be in that process's namespace."""
    (processes / "1" / "ns").mkdir(parents=True)
    (processes / "1" / "ns" / "net").symlink_to("net")  # a loop: root is denied little else
    with pytest.raises(KernelError, match="processes"):
        await liveness.find_without_container([RECORD])


async def test_phases_other_than_joined(liveness: Liveness) -> None:
    """Endpoints in any other phase are not dead."""
    for phase in set(Phase) - {Phase.JOINED}:
        assert not await is_dead(liveness, replace(RECORD, phase=phase))
    for phase in (Phase.PENDING, Phase.DELETING):
        lost = replace(RECORD, phase=phase, caller=LOST, sandbox_key="/var/run/docker/netns/gone")
        assert not await is_dead(liveness, lost)
