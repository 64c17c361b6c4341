# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Calls of plugins in process that take too long: the thread goes on, and nothing begins beside it."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from cni_bridge_spec import as_object, find_str, parse_json
from cni_invoker import Attachment, AttachmentKey, CniError, Limits, NetworkConfigurationList, PluginFailed, Runtime
from cni_invoker.errors import BadResult, GcFailed, PluginTimeout
from tests.records import list_of

ONE = Attachment(container_id="one", ifname="eth0", netns="/run/netns/none")
TWO = replace(ONE, container_id="two")
LIMITS = Limits(add_s=0.2, delete_s=0.2, version_s=20.0, retry_pauses_s=())
ANSWERS = {
    "VERSION": b'{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}',
    "ADD": b'{"cniVersion":"1.1.0"}',
}


def network(name: str = "blue") -> NetworkConfigurationList:
    """A list of one plugin."""
    return list_of({"type": "slow"}, name=name, version="1.1.0")


class Slow:
    """A plugin whose ADD and GC wait until they may end; for which there are no two calls at once for a container."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []

    def answer(self, environment: Mapping[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
        """Answer a call."""
        verb, name = environment["CNI_COMMAND"], find_str(as_object(parse_json(stdin), "it"), "name") or ""
        call = f"{verb} {environment['CNI_CONTAINERID']} {name}".strip()
        self.begun.append(call)
        self.has_begun.set()
        if verb in {"ADD", "GC"}:
            self.may_end.wait()
        self.ended.append(call)
        return 0, ANSWERS.get(verb, b""), b""


@pytest.fixture(name="slow")
def make_slow() -> Iterator[Slow]:
    """The plugin."""
    made = Slow()
    yield made
    made.may_end.set()


@pytest.fixture(name="runtime")
def make_runtime(slow: Slow) -> Runtime:
    """A runtime that has it."""
    return Runtime("/nowhere", LIMITS, in_process={"slow": slow.answer})


async def test_a_call_that_takes_too_long(slow: Slow, runtime: Runtime) -> None:
    """It fails and goes on; the next one for the container waits for it, those for others do not."""
    with pytest.raises(
        PluginTimeout, match=r"timed out after 0\.2 s and goes on, because it runs in this process"
    ) as one:
        await runtime.add(network(), ONE)
    assert one.value.started
    with pytest.raises(PluginTimeout, match=r"was not started within 0\.2 s: an earlier call in this process") as two:
        await runtime.delete(network(), ONE, None)
    assert not two.value.started
    await runtime.delete(network(), TWO, None)
    await runtime.delete(network("red"), ONE, None)
    assert slow.begun == ["ADD one blue", "DEL two blue", "DEL one red"]
    slow.may_end.set()
    await runtime.delete(network(), ONE, None)
    assert slow.ended[-2:] == ["ADD one blue", "DEL one blue"]


async def test_a_cancelled_call(slow: Slow, runtime: Runtime) -> None:
    """The caller does not wait; the thread goes on, and the DEL that follows waits for it."""
    async with asyncio.TaskGroup() as group:
        adding = group.create_task(runtime.add(network(), ONE))
        await asyncio.to_thread(slow.has_begun.wait)
        adding.cancel()
    assert adding.cancelled()
    async with asyncio.TaskGroup() as group:
        group.create_task(runtime.delete(network(), ONE, None))
        await asyncio.sleep(0.05)
        assert slow.begun == ["ADD one blue"]
        slow.may_end.set()
    assert slow.ended == ["ADD one blue", "DEL one blue"]


async def test_garbage_collection_waits_for_all(slow: Slow, runtime: Runtime) -> None:
    """It deletes what it was not told of; so no call of its network runs beside it."""
    key = AttachmentKey(container_id="two", ifname="eth0")
    with pytest.raises(PluginTimeout):
        await runtime.add(network(), ONE)
    with pytest.raises(GcFailed, match="was not started"):
        await runtime.gc(network(), [key])
    with pytest.raises(GcFailed, match="timed out"):
        await runtime.gc(network("red"), [key])
    with pytest.raises(PluginTimeout, match="was not started"):
        await runtime.delete(network("red"), TWO, None)
    slow.may_end.set()
    await runtime.delete(network("red"), TWO, None)
    await runtime.gc(network(), [key])


async def test_the_end_of_the_event_loop(slow: Slow, runtime: Runtime) -> None:
    """A call may outlive it; the next loop's calls wait for it as well."""

    def add() -> None:
        with pytest.raises(PluginTimeout, match="timed out"):
            asyncio.run(runtime.add(network(), ONE))

    await asyncio.to_thread(add)
    slow.may_end.set()
    await runtime.delete(network(), ONE, None)
    assert slow.ended == ["ADD one blue", "DEL one blue"]


async def test_a_result_that_is_too_long() -> None:
    """It is cut off as that of an executable."""
    limits = replace(LIMITS, stdout_bytes=8, add_s=20.0)
    runtime = Runtime("/nowhere", limits, in_process={"slow": lambda *_: (0, b'{"cniVersion":"1.1.0"}', b"")})
    with pytest.raises(BadResult, match="more than 8 bytes on standard output"):
        await runtime.add(network(), ONE)


async def test_a_plugin_that_raises() -> None:
    """Even SystemExit fails the call as a crash of an executable does, and its traceback is standard error."""

    def crash(environment: Mapping[str, str], _: bytes) -> tuple[int, bytes, bytes]:
        if environment["CNI_COMMAND"] == "ADD":
            raise SystemExit("banana")
        return 0, ANSWERS["VERSION"], b""

    with pytest.raises(PluginFailed, match="banana") as caught:
        await Runtime("/nowhere", replace(LIMITS, add_s=20.0), in_process={"slow": crash}).add(network(), ONE)
    assert (caught.value.exit_status, caught.value.stderr_tail[-1]) == (1, "SystemExit: banana")


async def test_no_thread(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not run."""

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("cni_invoker.waiting.start_new_thread", refuse)
    with pytest.raises(CniError, match="cannot execute it in process: no further thread can be started"):
        await runtime.add(network(), ONE)
