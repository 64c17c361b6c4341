# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The runtime for programs without asyncio."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cni_invoker
from cni_invoker import FileCache, Limits, MemoryCache, Result, sync
from cni_invoker.errors import AttachmentExists, PluginFailed
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, KEY, LIMITS, RESULT, THREE, without_version
from tests.unit.cni_invoker.test_threads import BLUE, LIMIT_S, OPERATIONS, THREADS, attachment


def test_every_verb(plugins: FakePlugins) -> None:
    """Each verb runs the plugins and returns when it is done."""
    runtime = sync.Runtime(plugins.directory, LIMITS)
    results: list[Result] = []
    deleted: list[frozenset[int]] = []
    result = runtime.add(runtime.negotiate(THREE), ATTACHMENT, on_result=results.append)
    assert (results[0].document, results[-1]) == (RESULT, result)
    runtime.check(THREE, ATTACHMENT, result)
    runtime.delete(THREE, ATTACHMENT, result, on_deleted=deleted.append)
    assert deleted == [{2}, {1, 2}, {0, 1, 2}]
    runtime.gc(THREE, [KEY])
    runtime.status(THREE)
    assert [verb for _, verb in without_version(plugins)] == [
        verb for verb in ("ADD", "CHECK", "DEL", "GC", "STATUS") for _ in range(3)
    ]
    assert runtime.version("first").supported[-1] == "1.1.0"
    assert runtime.find_plugins(THREE) == tuple(map(runtime.find_plugin, THREE.plugin_types))
    assert sync.run_preflight(runtime, THREE).is_good


def test_attachments_are_stored(plugins: FakePlugins, tmp_path: Path) -> None:
    """The cached runtime stores, lists, checks and deletes attachments."""
    runtime = sync.CachedRuntime(sync.Runtime(plugins.directory, LIMITS), FileCache(tmp_path / "cache"))
    runtime.add(THREE, ATTACHMENT)
    runtime.check(THREE, ATTACHMENT)
    with pytest.raises(AttachmentExists):
        runtime.add(THREE, ATTACHMENT)
    (cached,) = runtime.attachments("some-list")
    runtime.delete_cached(cached)
    runtime.delete(THREE, ATTACHMENT)
    runtime.add(THREE, ATTACHMENT)
    runtime.gc(THREE, [])
    runtime.add(THREE, ATTACHMENT)
    runtime.forget("some-list", KEY)
    assert runtime.attachments() == ()


def test_a_sandbox(plugins: FakePlugins) -> None:
    """The attachments of a container are added, checked, listed, collected and deleted together."""
    runtime = sync.CachedRuntime(sync.Runtime(plugins.directory, LIMITS), MemoryCache())
    sandbox = sync.Sandbox(runtime, "c1")
    (added,) = sandbox.add("/run/netns/c1", [THREE], loopback=False)
    assert (added.ifname, sync.list_sandboxes(runtime)) == ("eth0", ("c1",))
    sandbox.check()
    sync.collect_sandboxes(runtime, [], ["c1"])
    assert len(sandbox.attachments()) == 1
    sandbox.delete()
    assert sync.list_sandboxes(runtime) == ()


def test_an_error_has_no_other_context(plugins: FakePlugins) -> None:
    """A traceback shows the failure alone, not how the facade has looked for an event loop."""
    plugins.install("first", ADD={"error": {"code": 100, "msg": "banana"}})
    with pytest.raises(PluginFailed, match="banana") as caught:
        sync.Runtime(plugins.directory).add(THREE, ATTACHMENT)
    assert caught.value.__context__ is None


async def test_within_a_running_event_loop(plugins: FakePlugins) -> None:
    """A thread whose event loop runs, such as a notebook's, may call it too."""
    runtime = sync.CachedRuntime(sync.Runtime(plugins.directory, LIMITS), MemoryCache())
    await asyncio.sleep(0)
    runtime.add(THREE, ATTACHMENT)
    runtime.delete(THREE, ATTACHMENT)
    assert [verb for _, verb in without_version(plugins)] == ["ADD"] * 3 + ["DEL"] * 3


@pytest.mark.slow
def test_a_thousand_operations_from_sixteen_threads(plain: Path) -> None:
    """Threads share one runtime: no two plugins work for one container at once."""
    runtime = sync.CachedRuntime(sync.Runtime(plain, Limits(executions=4)), MemoryCache())
    lives = OPERATIONS // 2

    def life(number: int) -> None:
        one = attachment(number)
        runtime.add(BLUE, one)
        runtime.delete(BLUE, one)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(life, number) for number in range(lives)]:
            done.result(LIMIT_S)
    calls = (plain / "calls").read_text().split()
    assert (calls.count("ADD"), calls.count("DEL")) == (lives, lives)


@pytest.mark.parametrize("name", sync.__all__)
def test_the_names_are_the_same(name: str) -> None:
    """Each method has the parameters of its asynchronous counterpart, without those for programs like cni-bridge."""
    ours, theirs = getattr(sync, name), getattr(cni_invoker, name)
    for method, function in inspect.getmembers(ours, inspect.isfunction):
        if not method.startswith("_"):
            known = set(inspect.signature(getattr(theirs, method)).parameters)
            assert set(inspect.signature(function).parameters) <= known
