# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins are told to clean up for the daemon, and what keeps them from it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from cni_invoker import (
    Attachment,
    CachedAttachment,
    FileCache,
    Limits,
    MemoryCache,
    NetworkConfigurationList,
    Runtime,
)
from cnm_bridge.recovery.plugin_gc import PluginGc
from spec import JsonValue, get_objects, get_str
from tests.plugins import FakePlugins

LIMITS = Limits(add_s=20.0, gc_s=20.0, version_s=20.0, grace_s=0.3, executions=4)


def network(name: str = "blue", **keys: JsonValue) -> NetworkConfigurationList:
    """Make a list."""
    return NetworkConfigurationList.from_document(
        {"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "first"}, {"type": "second"}], **keys}
    )


def attached(container_id: str, to: NetworkConfigurationList) -> CachedAttachment:
    """Make an attachment."""
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
    def told(self) -> list[tuple[str, set[str]]]:
        """Which network GC was run for by the first plugin, and whom it was told to be valid."""
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
    """What a test starts from."""
    return Scene(tmp_path)


async def test_everybody_there_is_valid(scene: Scene) -> None:
    """Endpoints of every list of the name, and what libcni keeps; other names have their own."""
    edited = network(more=1)
    for cached in (attached("e1", network()), attached("e2", edited), attached("e3", network("red"))):
        await scene.own.put(cached)
    await scene.libcni.put(attached("cnitool-1", network()))
    await scene.plugin_gc.collect([network(), network("bound-only")])
    assert sorted(scene.told, key=lambda told: told[0]) == [
        ("blue", {"e1", "e2", "cnitool-1"}),
        ("blue", {"e1", "e2", "cnitool-1"}),
        ("bound-only", set()),
        ("red", {"e3"}),
    ]


async def test_only_where_there_is_a_gc(scene: Scene) -> None:
    """Nothing is run for a list that is too old, or does not want it, nor by a plugin that does not know it."""
    await scene.plugin_gc.collect([network(disableGC=True), network(cniVersion="1.0.0")])
    assert not scene.plugins.calls
    scene.plugins.install("second", VERSION={"supportedVersions": ["1.0.0"]})
    await scene.plugin_gc.collect([network()])
    assert [call for call in scene.plugins.calls if call[1] == "GC"] == [("first", "GC")]


@pytest.mark.parametrize("file", ["blue-c1-eth0", "red-c1-eth0"])
async def test_a_cache_that_is_not_whole(scene: Scene, file: str) -> None:
    """Who cannot be read may be there all the same: nobody's network is cleaned up then, but for other names."""
    await scene.libcni.put(attached("cnitool-1", network()))
    (scene.directory / "results" / file).write_text("garbage")
    await scene.plugin_gc.collect([network()])
    assert len(scene.told) == (0 if file.startswith("blue") else 1)


async def test_an_add_is_waited_for_a_moment(scene: Scene) -> None:
    """While one is under way nothing is collected; it is not waited for until its end."""
    scene.plugins.install("first", ADD={"sleep_s": 60})
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(scene.runtime.add(network(), attached("e1", network()).attachment))
        async with asyncio.timeout(20):
            while ("first", "ADD") not in scene.plugins.calls:  # noqa: ASYNC110  # a file is polled
                await asyncio.sleep(0.02)
            await scene.plugin_gc.collect([network()])
        assert scene.told == []
        adding.cancel()
    await scene.plugin_gc.collect([network()])
    assert scene.told == [("blue", set())]


async def test_a_failure_is_of_one_network(scene: Scene) -> None:
    """Others are collected all the same, and so is the rest of the list."""
    scene.plugins.install("first", GC={"error": {"code": 999, "msg": "banana"}})
    await scene.plugin_gc.collect([network(), network("red")])
    assert [call for call in scene.plugins.calls if call[1] == "GC"] == [("first", "GC"), ("second", "GC")] * 2
    lost = replace(attached("e1", network()), configuration={"name": "blue", "plugins": "none"})
    await scene.own.put(lost)
    await scene.plugin_gc.collect([network()])
    assert len(scene.told) == 2


async def test_it_goes_on_now_and_then(scene: Scene) -> None:
    """A bug does not end it, and in doubt nothing is collected."""
    rounds = 0
    doubts = ["it is raining", "it is raining", None]

    async def find() -> list[NetworkConfigurationList]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise RuntimeError("a bug")
        return [network()]

    async def find_gap() -> str | None:
        return doubts.pop(0) if len(doubts) > 1 else doubts[0]

    with structlog.testing.capture_logs() as said:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(scene.plugin_gc.run(find, find_gap, every_s=0.01))
            async with asyncio.timeout(20):
                while len(scene.told) < 2:  # noqa: ASYNC110  # a file is polled
                    await asyncio.sleep(0.02)
            running.cancel()
    assert doubts == [None]
    assert [line["event"] for line in said] == ["gc.put_off", "gc.bug"]


async def test_nothing_is_collected_in_doubt(scene: Scene) -> None:
    """Not even looked for."""
    asked = 0

    async def find() -> list[NetworkConfigurationList]:
        raise AssertionError

    async def find_gap() -> str:
        nonlocal asked
        asked += 1
        return "it is raining"

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scene.plugin_gc.run(find, find_gap, every_s=0.01))
        async with asyncio.timeout(20):
            while asked < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
    assert not scene.plugins.calls
