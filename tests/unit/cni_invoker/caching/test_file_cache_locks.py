# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk, used concurrently."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPERM
from pathlib import Path

import pytest

from cni_invoker import FileCache
from cni_invoker.caching import file_cache
from cni_invoker.errors import NetworkBusy, PluginStillRuns
from cni_invoker.execution import running_plugins
from cni_invoker.execution.running_plugins import environment_of
from tests.unit.cni_invoker.processes import wait_until


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


@pytest.mark.parametrize(
    ("network", "container_id", "waits"),
    [("blue", "c1", True), ("red", "c1", True), ("blue", "c2", False), ("blue", None, True), ("red", None, False)],
)
async def test_processes_exclude_each_other(
    files: FileCache, tmp_path: Path, network: str, container_id: str | None, waits: bool
) -> None:
    """Operations on a container are serialized on all networks, and GC has a network alone; no lock stays held."""
    other = FileCache(tmp_path)
    async with files.hold("blue", "c1", wait_s=0):
        if waits:
            with pytest.raises(NetworkBusy):
                async with other.hold(network, container_id, wait_s=0):
                    pytest.fail("it must not be entered")
        else:
            async with other.hold(network, container_id, wait_s=0):
                pass
    async with other.hold(network, container_id, wait_s=0):
        pass


async def test_gc_has_a_network_alone(files: FileCache, tmp_path: Path) -> None:
    """No other process can hold the network or a container on it."""
    async with files.hold("blue", None, wait_s=0):
        for container_id in ("c1", None):
            with pytest.raises(NetworkBusy):
                async with FileCache(tmp_path).hold("blue", container_id, wait_s=0):
                    pytest.fail("it must not be entered")


@contextmanager
def left_behind(name: str) -> Iterator[int]:
    """Run a process that a plugin of this execution has left behind; yield its process ID."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={running_plugins.VARIABLE: name}) as process:
        wait_until(lambda: any(environment_of(process.pid)))
        yield process.pid


async def test_plugins_that_hang_in_the_kernel_do_not_stop_the_event_loop(
    files: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the environment of such a process may never end, so that is done in other threads only."""
    file = files.running_dir / f"1-{10**12}-0"  # of no process that runs
    files.running_dir.mkdir(parents=True)
    file.write_text("c1 ADD bridge\n")
    readers = set()

    def read_environment(pid: int) -> frozenset[bytes]:
        readers.add(threading.get_ident())
        return environment_of(pid)

    def refuse(_: int) -> int:
        raise OSError(EPERM, "not permitted")

    with left_behind(file.name) as pid:
        monkeypatch.setattr(file_cache, "_KILL_LIMIT_S", 0.0)
        monkeypatch.setattr(os, "pidfd_open", refuse)
        monkeypatch.setattr(running_plugins, "environment_of", read_environment)
        with pytest.raises(PluginStillRuns, match=f"{pid} "):
            async with files.hold("blue", "c1", wait_s=0):
                pytest.fail("it must not be entered")
    assert readers
    assert threading.get_ident() not in readers
