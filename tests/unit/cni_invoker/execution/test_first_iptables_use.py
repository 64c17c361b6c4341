# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which ADDs are serialized because they may create shared chains, and which are not."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, NetworkConfigurationList, PluginConfiguration, Result
from cni_invoker.execution.first_iptables_use import FirstIptablesUse
from cni_invoker.waiting import take_file_lock

HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""

PORTS = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": [{"hostPort": 8080}]})
NO_PORTS = Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"portMappings": []})
IPV4 = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24"}]})
IPV6 = Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": "fd00::9/64"}]})
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}


def plugin(document: JsonObject) -> PluginConfiguration:
    """Return the configuration of one plugin."""
    return NetworkConfigurationList.from_document({"name": "net", "plugins": [document]}).plugins[0]


async def most_at_once(
    chains: FirstIptablesUse, document: JsonObject, attachment: Attachment = PORTS, prev_result: Result | None = IPV4
) -> int:
    """Return how many of three ADDs run at the same time: two if the first one runs alone."""
    running, most = 0, 0

    async def add() -> None:
        nonlocal running, most
        async with chains.serialize_first_add(plugin(document), attachment, prev_result):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(add())
    return most


async def are_free(chains: FirstIptablesUse, document: JsonObject) -> bool:
    """Return whether all of three ADDs may run at the same time."""
    return await most_at_once(chains, document, NO_PORTS, None) == 3


@pytest.mark.parametrize(
    "document",
    [PORTMAP, {"type": "firewall"}, {"type": "bridge", "ipMasq": True}, {"type": "ptp", "ipMasq": True}],
)
async def test_the_first_add_runs_alone(document: JsonObject) -> None:
    """ADDs of plugins that create shared chains run one at a time until one has succeeded."""
    chains = FirstIptablesUse()
    with pytest.raises(RuntimeError):
        async with chains.serialize_first_add(plugin(document), PORTS, IPV4):
            raise RuntimeError
    order: list[str] = []

    async def add(name: str, work: Callable[[], Awaitable[None]]) -> None:
        async with chains.serialize_first_add(plugin(document), PORTS, IPV4):
            order.append(f"{name} begins")
            await work()
            order.append(f"{name} ends")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(add("a", lambda: asyncio.sleep(0.01)))
        tasks.create_task(add("b", lambda: asyncio.sleep(0.01)))
        tasks.create_task(add("c", lambda: asyncio.sleep(0.01)))
    assert order[:2] == ["a begins", "a ends"]
    assert order[2:4] == ["b begins", "c begins"]
    assert await most_at_once(chains, document) == 3


@pytest.mark.parametrize(
    ("document", "attachment"),
    [
        ({"type": "bridge"}, PORTS),
        ({"type": "bridge", "ipMasq": False}, PORTS),
        ({"type": "macvlan", "ipMasq": True}, PORTS),
        (PORTMAP, NO_PORTS),
        ({"type": "portmap"}, PORTS),
    ],
)
async def test_other_adds_never_wait(document: JsonObject, attachment: Attachment) -> None:
    """ADDs of plugins that create no shared chain, or need none for this attachment, run concurrently."""
    assert await most_at_once(FirstIptablesUse(), document, attachment) == 3


async def test_each_address_family_is_serialized_separately() -> None:
    """IPv6 has its own chains: its first ADD runs alone even after one of IPv4."""
    chains = FirstIptablesUse()
    async with chains.serialize_first_add(plugin(PORTMAP), PORTS, IPV4):
        pass
    assert await most_at_once(chains, PORTMAP, prev_result=IPV4) == 3
    async with chains.serialize_first_add(plugin(PORTMAP), PORTS, IPV6):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await most_at_once(chains, PORTMAP, prev_result=IPV6)


def masquerading(**ipam: JsonValue) -> JsonObject:
    """Return the configuration of a bridge that masquerades."""
    return {"type": "bridge", "ipMasq": True, "ipam": ipam}


V4 = masquerading(type="host-local", ranges=[[{"subnet": "10.1.0.0/24"}]], routes=[{"dst": "::/0"}])
V6 = masquerading(type="static", addresses=[{"address": "fd00::9/64"}])
BOTH = masquerading(type="host-local", subnet="10.1.0.0/24", ranges=[[{"subnet": "fd00::/64"}]])
UNKNOWN = masquerading(type="dhcp")


@pytest.mark.parametrize(
    ("made", "document", "free"),
    [
        ([V4], V4, True),
        ([V4], V6, False),
        ([V4], BOTH, False),
        ([V4, V6], BOTH, True),
        ([BOTH], V6, True),
        ([V4, V6], UNKNOWN, False),
        ([UNKNOWN], UNKNOWN, True),
        ([UNKNOWN], V4, False),
    ],
)
async def test_masquerading_depends_on_the_families_of_ipam(
    made: list[JsonObject], document: JsonObject, free: bool
) -> None:
    """The families come from the IPAM configuration; without addresses in it, the IPAM type counts as a family."""
    chains = FirstIptablesUse()
    for earlier in made:
        async with chains.serialize_first_add(plugin(earlier), NO_PORTS, None):
            pass
    assert (await are_free(chains, document)) is free


@pytest.mark.parametrize(
    "attachment",
    [
        Attachment(container_id="c", ifname="eth0", netns="/n", args=(("IP", "10.1.0.9/24,fd00::9/64"),)),
        Attachment(container_id="c", ifname="eth0", netns="/n", capability_args={"ips": ["fd00::9/64"]}),
        Attachment(
            container_id="c", ifname="eth0", netns="/n", capability_args={"ipRanges": [[{"subnet": "fd00::/64"}]]}
        ),
    ],
)
async def test_masquerading_depends_on_requested_addresses(attachment: Attachment) -> None:
    """A family that only the attachment's arguments request is serialized too."""
    chains = FirstIptablesUse()
    async with chains.serialize_first_add(plugin(V4), NO_PORTS, None):
        pass
    async with chains.serialize_first_add(plugin(V4), attachment, None):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), chains.serialize_first_add(plugin(V4), attachment, None):
                pytest.fail("the first ADD with IPv6 has not completed")


HOLDER = """
import asyncio, pathlib, sys
from cni_invoker import Attachment, NetworkConfigurationList
from cni_invoker.execution.first_iptables_use import FirstIptablesUse

async def main():
    document = {"name": "net", "plugins": [{"type": "firewall"}]}
    (plugin,) = NetworkConfigurationList.from_document(document).plugins
    attachment = Attachment(container_id="other", ifname="eth0", netns="/n")
    async with FirstIptablesUse(pathlib.Path(sys.argv[1])).serialize_first_add(plugin, attachment, None):
        print("inside", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""
"""The first ADD of another process, which completes at the end of its standard input."""


@contextmanager
def other_process(directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Keep another process in its first ADD."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    root = Path(__file__).parents[4]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        try:
            yield process
        finally:
            process.kill()


async def test_first_adds_of_processes_are_serialized(tmp_path: Path) -> None:
    """The first ADD of a process waits for that of another with the same lock directory; later ADDs do not wait."""
    directory = tmp_path / "locks"
    later, first, unrelated = (
        FirstIptablesUse(directory),
        FirstIptablesUse(directory),
        FirstIptablesUse(tmp_path / "other"),
    )
    async with later.serialize_first_add(plugin(PORTMAP), PORTS, IPV4):
        pass
    with other_process(directory) as process:
        assert await most_at_once(later, PORTMAP) == 3
        async with unrelated.serialize_first_add(plugin(PORTMAP), PORTS, IPV4):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), first.serialize_first_add(plugin(PORTMAP), PORTS, IPV4):
                pytest.fail("the ADD of the other process has not completed")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(most_at_once(first, PORTMAP))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            process.communicate(b"", timeout=20)
        assert waiting.result() == 2  # the first one ran alone, then two at once


async def add_once(chains: FirstIptablesUse, container_id: str) -> None:
    """Run the ADD of a container."""
    attachment = replace(PORTS, container_id=container_id)
    async with asyncio.timeout(HANG_LIMIT_S), chains.serialize_first_add(plugin(PORTMAP), attachment, IPV4):
        pass


async def test_a_first_add_that_hangs_is_not_waited_for_long(caplog: pytest.LogCaptureFixture) -> None:
    """Those that wait go on without the lock after a while, which is logged once."""
    chains = FirstIptablesUse(wait_s=0.05)

    async def hang() -> None:
        async with chains.serialize_first_add(plugin({"type": "firewall"}), PORTS, IPV4):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        hanging = [tasks.create_task(hang()) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(3):
            await add_once(chains, f"c{number}")
        for task in hanging:
            task.cancel()
    (record,) = caplog.records
    facts = record.__dict__
    assert (facts["event"], facts["file"], facts["waited_s"]) == ("lock.kept", None, 0.05)


async def test_a_lock_that_another_process_keeps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not waited for long, which is logged with the file; when it is free, it is taken again."""
    chains = FirstIptablesUse(tmp_path, wait_s=0.05)
    lock = tmp_path / "shared-chains.lock"
    with lock.open("w") as other:
        assert take_file_lock(other.fileno())
        async with asyncio.timeout(HANG_LIMIT_S):
            for document in (PORTMAP, {"type": "firewall"}):
                assert await most_at_once(chains, document)  # all three have run
    (record,) = caplog.records
    assert (record.__dict__["event"], record.__dict__["file"]) == ("lock.kept", str(lock))
    async with chains.serialize_first_add(plugin({"type": "ptp", "ipMasq": True}), PORTS, None):
        with lock.open() as other:
            assert not take_file_lock(other.fileno())


async def test_adds_run_without_a_lock_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the lock directory cannot be created, that is logged once, and ADD runs."""
    (tmp_path / "file").write_bytes(b"")
    chains = FirstIptablesUse(tmp_path / "file" / "locks")
    for document in (PORTMAP, {"type": "firewall"}):
        async with chains.serialize_first_add(plugin(document), PORTS, IPV4):
            pass
    (record,) = caplog.records
    assert (record.__dict__["event"], record.__dict__["reason"]) == ("lock.unavailable", "Not a directory")
