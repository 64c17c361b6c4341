# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A child that is forked while other threads of the program work has a runtime that works."""

import fcntl
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import CachedRuntime, ConfigurationDirectories, FileCache, Limits, Runtime, sync
from tests.lab.waiting import wait_until
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, network

SLOW = network({"type": "slow"})
QUICK = network({"type": "quick"})


def in_child(work: Callable[[], object], limit_s: float = 20.0) -> None:
    """Run `work` in a forked child; fail if it fails, or does not end in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must not return into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    deadline = time.monotonic() + limit_s
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child waits for threads that it does not have")
        time.sleep(0.01)


@contextmanager
def adding(runtime: sync.CachedRuntime, plugins: FakePlugins, gate: Path) -> Iterator[None]:
    """A thread adds a container while the body runs."""
    plugins.install("slow", ADD={"wait_for": str(gate)})
    plugins.install("quick")
    thread = threading.Thread(target=lambda: runtime.add(SLOW, ATTACHMENT))
    thread.start()
    try:
        wait_until(lambda: ("slow", "ADD") in plugins.calls, "the plugin runs")
        yield
    finally:
        gate.touch()
        thread.join()


@pytest.fixture(name="cached")
def make_cached(plugins: FakePlugins, tmp_path: Path) -> sync.CachedRuntime:
    """A runtime that runs one plugin at a time."""
    return sync.CachedRuntime(
        sync.Runtime(plugins.directory, Limits(executions=1, wait_s=60.0)), FileCache(tmp_path / "cache"), wait_s=60.0
    )


def test_a_runtime_in_a_child(cached: sync.CachedRuntime, plugins: FakePlugins, tmp_path: Path) -> None:
    """Neither slots nor locks of the parent's threads are held there: other containers are added at once."""
    other = replace(ATTACHMENT, container_id="c2")
    with adding(cached, plugins, tmp_path / "gate"):
        in_child(lambda: cached.add(QUICK, other))
        in_child(lambda: cached.delete(QUICK, other))


def test_locks_that_are_being_taken(cached: sync.CachedRuntime, plugins: FakePlugins, tmp_path: Path) -> None:
    """A thread that is about to change a lock does not exist in the child."""
    plugins.install("quick")
    directories = ConfigurationDirectories(tmp_path)
    held = [directories._mutex, *_mutexes(cached.asynchronous)]
    assert len(held) > 3
    for mutex in held:
        mutex.acquire()
    try:
        in_child(lambda: (directories.index(), cached.add(QUICK, ATTACHMENT)))
    finally:
        for mutex in held:
            mutex.release()


def _mutexes(runtime: CachedRuntime) -> Iterator[threading.Lock]:
    """Yield the locks that an ADD takes."""
    inner: Runtime = runtime._runtime
    executor = inner._executor
    owners: list[object] = [inner._locks, runtime._locks._locks, executor._slots, executor._slots_of_delete]
    for owner in [*owners, runtime._adds]:
        mutex = vars(owner)["_mutex"]
        yield mutex


def test_a_child_keeps_no_lock(cached: sync.CachedRuntime, plugins: FakePlugins, tmp_path: Path) -> None:
    """It has the parent's descriptors, but other processes get the locks as soon as the parent has released them."""
    release = tmp_path / "release"
    child = 0
    try:
        with adding(cached, plugins, tmp_path / "gate"):
            child = os.fork()
            if child == 0:
                while not release.exists():
                    time.sleep(0.01)
                os._exit(0)
        with (tmp_path / "cache/locks" / SLOW.name).open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        release.touch()
        os.waitpid(child, 0)
