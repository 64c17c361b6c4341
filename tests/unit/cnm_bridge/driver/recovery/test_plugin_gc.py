# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""When the daemon runs the plugins' GC, and with which valid attachments."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from cni_bridge_spec import JsonValue, get_objects, get_str
from cni_invoker import Attachment, CachedAttachment, FileCache, Limits, MemoryCache, NetworkConfigurationList, Runtime
from cnm_bridge.driver.recovery.plugin_gc import PluginGc
from tests.plugins import FakePlugins

LIMITS = Limits(add_s=20.0, gc_s=20.0, version_s=20.0, grace_s=0.3, executions=4)


def network(name: str = "blue", **keys: JsonValue) -> NetworkConfigurationList:
    """Make a network configuration list."""
    return NetworkConfigurationList.from_document(
        {"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "first"}, {"type": "second"}], **keys}
    )


def attached(container_id: str, to: NetworkConfigurationList) -> CachedAttachment:
    """Return an attachment to a list."""
    attachment = Attachment(container_id=container_id, ifname="eth0", netns=f"/run/netns/{container_id}")
    return CachedAttachment(
        network=to.name, attachment=attachment, configuration=to.document, result=None, boot_id="b", added_plugins=0
    )


class Scene:
    """Two plugins, the daemon's attachments, and libcni's."""

    def __init__(self, directory: Path) -> None:
        self.plugins = FakePlugins(directory / "bin")
        for name in ("first", "second"):
            self.plugins.install(name)
        self.own = MemoryCache()
        self.directory = directory / "cni"
        self.libcni = FileCache(self.directory)
        self.runtime = Runtime([self.plugins.directory], LIMITS)
        self.plugin_gc = PluginGc(self.runtime, self.own, [self.libcni])

    @property
    def received(self) -> list[tuple[str, set[str]]]:
        """Return the network and the valid container IDs of each GC of the first plugin."""
        return [
            (
                get_str(command.stdin, "name"),
                {get_str(key, "containerID") for key in get_objects(command.stdin, "cni.dev/valid-attachments")},
            )
            for command in self.plugins.commands
            if (command.verb, command.plugin) == ("GC", "first")
        ]


@pytest.fixture(name="scene")
def make_scene(tmp_path: Path) -> Scene:
    """Two plugins that succeed, and no attachments."""
    return Scene(tmp_path)


async def test_all_attachments_of_the_name_are_valid(scene: Scene) -> None:
    """These are the endpoints of every list with that name, and the attachments in libcni's cache."""
    edited = network(more=1)
    for cached in (attached("e1", network()), attached("e2", edited), attached("e3", network("red"))):
        await scene.own.put(cached)
    await scene.libcni.put(attached("cnitool-1", network()))
    await scene.plugin_gc.collect([network(), network("bound-only")])
    assert sorted(scene.received, key=lambda received: received[0]) == [
        ("blue", {"e1", "e2", "cnitool-1"}),
        ("blue", {"e1", "e2", "cnitool-1"}),
        ("bound-only", set()),
        ("red", {"e3"}),
    ]


async def test_gc_runs_only_where_it_is_supported(scene: Scene) -> None:
    """Lists that are too old or disable GC, and plugins that do not support it, are skipped."""
    await scene.plugin_gc.collect([network(disableGC=True), network(cniVersion="1.0.0")])
    assert not scene.plugins.calls
    scene.plugins.install("second", VERSION={"supportedVersions": ["1.0.0"]})
    await scene.plugin_gc.collect([network()])
    assert [call for call in scene.plugins.calls if call[1] == "GC"] == [("first", "GC")]


@pytest.mark.parametrize("file", ["blue-c1-eth0", "red-c1-eth0"])
async def test_gc_does_not_run_with_a_damaged_record_of_the_network(scene: Scene, file: str) -> None:
    """The record may be a valid attachment; networks with another name are not affected."""
    await scene.libcni.put(attached("cnitool-1", network()))
    (scene.directory / "results" / file).write_text("garbage")
    await scene.plugin_gc.collect([network()])
    assert len(scene.received) == (0 if file.startswith("blue") else 1)


async def test_gc_does_not_wait_long_for_an_add(scene: Scene) -> None:
    """While an ADD runs, that network is skipped; the next round runs its GC."""
    scene.plugins.install("first", ADD={"sleep_s": 60})
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(scene.runtime.add(network(), attached("e1", network()).attachment))
        async with asyncio.timeout(20):
            while ("first", "ADD") not in scene.plugins.calls:  # noqa: ASYNC110  # a file is polled
                await asyncio.sleep(0.02)
            await scene.plugin_gc.collect([network()])
        assert scene.received == []
        adding.cancel()
    await scene.plugin_gc.collect([network()])
    assert scene.received == [("blue", set())]


async def test_a_failed_gc_does_not_stop_the_others(scene: Scene) -> None:
    """The other plugins of the list, and other networks, run GC; a network with an invalid stored list is skipped."""
    scene.plugins.install("first", GC={"error": {"code": 999, "msg": "banana"}})
    await scene.plugin_gc.collect([network(), network("red")])
    assert [call for call in scene.plugins.calls if call[1] == "GC"] == [("first", "GC"), ("second", "GC")] * 2
    lost = replace(attached("e1", network()), configuration={"name": "blue", "plugins": "none"})
    await scene.own.put(lost)
    await scene.plugin_gc.collect([network()])
    assert len(scene.received) == 2


async def test_gc_runs_periodically(scene: Scene) -> None:
    """An exception does not end the loop, and GC is put off while there is a gap in the inventory."""
    rounds = 0
    gaps = ["a gap", "a gap", None]

    async def find() -> list[NetworkConfigurationList]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise RuntimeError("a bug")
        return [network()]

    async def find_gap() -> str | None:
        return gaps.pop(0) if len(gaps) > 1 else gaps[0]

    with structlog.testing.capture_logs() as logs:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(scene.plugin_gc.run(find, find_gap, every_s=0.01))
            async with asyncio.timeout(20):
                while len(scene.received) < 2:  # noqa: ASYNC110  # a file is polled
                    await asyncio.sleep(0.02)
            running.cancel()
    assert gaps == [None]
    assert [line["event"] for line in logs] == ["gc.deferred", "gc.bug"]


async def test_gc_does_not_run_with_a_gap_in_the_inventory(scene: Scene) -> None:
    """The lists are not even read."""
    checks = 0

    async def find() -> list[NetworkConfigurationList]:
        raise AssertionError

    async def find_gap() -> str:
        nonlocal checks
        checks += 1
        return "a gap"

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scene.plugin_gc.run(find, find_gap, every_s=0.01))
        async with asyncio.timeout(20):
            while checks < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
    assert not scene.plugins.calls
