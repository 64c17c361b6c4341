# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The runtimes for programs without asyncio."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cni_invoker
from cni_invoker import Attachment, CachedRuntime, FileCache, Result, Runtime, sync
from cni_invoker.errors import AttachmentExists
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, KEY, LIMITS, RESULT, THREE, without_version


def test_every_verb(plugins: FakePlugins) -> None:
    """Each verb runs the plugins and returns when it is done."""
    runtime = sync.Runtime(Runtime(plugins.directory, LIMITS))
    results: list[Result] = []
    deleted: list[frozenset[int]] = []

    async def keep_result(result: Result) -> None:
        results.append(result)

    async def keep_deleted(indexes: frozenset[int]) -> None:
        deleted.append(indexes)

    result = runtime.add(runtime.negotiate(THREE), ATTACHMENT, on_result=keep_result)
    assert (results[0].document, results[-1]) == (RESULT, result)
    runtime.check(THREE, ATTACHMENT, result)
    runtime.delete(THREE, ATTACHMENT, result, on_deleted=keep_deleted)
    assert deleted == [{2}, {1, 2}, {0, 1, 2}]
    runtime.gc(THREE, [KEY])
    runtime.status(THREE)
    assert [verb for _, verb in without_version(plugins)] == [
        verb for verb in ("ADD", "CHECK", "DEL", "GC", "STATUS") for _ in range(3)
    ]
    assert runtime.version("first").supported[-1] == "1.1.0"


def test_attachments_are_stored(plugins: FakePlugins, tmp_path: Path) -> None:
    """The cached runtime stores, lists, checks and deletes attachments."""
    runtime = sync.CachedRuntime(CachedRuntime(Runtime(plugins.directory, LIMITS), FileCache(tmp_path / "cache")))
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


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_within_a_running_event_loop(plugins: FakePlugins) -> None:
    """A call is an error that names the reason, and runs no plugin."""
    runtime = sync.Runtime(Runtime(plugins.directory, LIMITS))
    with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
        runtime.add(THREE, ATTACHMENT)
    assert plugins.calls == ()


@pytest.mark.parametrize("name", sync.__all__)
def test_the_methods_are_the_same(name: str) -> None:
    """Each asynchronous method has one here."""
    asynchronous, ours = getattr(cni_invoker, name), vars(getattr(sync, name))
    for method, function in inspect.getmembers(asynchronous, inspect.iscoroutinefunction):
        if not method.startswith("_"):
            assert ours[method].__wrapped__ is function


def test_calls_of_several_threads(plugins: FakePlugins, tmp_path: Path) -> None:
    """They run one after the other, and so do event loops of one thread in which tasks have waited for each other."""
    plugins.install("first", VERSION={"sleep_s": 0.05, "supportedVersions": ["1.1.0"]})
    runtime = sync.CachedRuntime(CachedRuntime(Runtime(plugins.directory, LIMITS), FileCache(tmp_path / "x")))

    def life(number: int) -> None:
        attachment = Attachment(container_id=f"c{number}", ifname="eth0", netns="/run/netns/c")
        runtime.add(THREE, attachment)
        runtime.delete(THREE, attachment)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(life, range(4)))
    verbs = [verb for _, verb in without_version(plugins)]
    assert verbs.count("ADD") == verbs.count("DEL") == 12
    assert runtime.attachments() == ()
