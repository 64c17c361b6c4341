# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The files of the cache: their format, which libcni shares, and their locks."""

import base64
import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EPERM
from pathlib import Path

import pytest

from cni_invoker.errors import NetworkBusy, PluginStillRuns
from cni_invoker.execution import running_plugins
from cni_invoker.execution.running_plugins import environment_of
from cni_tool import CacheDamaged, FileCache, file_cache
from extras.cni_tool.tests.unit.cached_attachments import CACHED, KEY, LIST, RESULT, cached, names, read, write_record
from tests.unit.cni_invoker.processes import wait_until


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


LIBCNI = (
    '{"kind":"cniCacheV1","containerId":"c1",'
    '"config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoiYmx1ZSIsInBsdWdpbnMiOlt7InR5cGUiOiJicmlkZ2UifV19",'
    '"ifName":"eth0","networkName":"blue","netns":"/run/netns/c1","cniArgs":[["FOO","BAR"]],'
    '"capabilityArgs":{"mac":"c2:11:22:33:44:55"},'
    '"result":{"cniVersion":"1.0.0","dns":{},"ips":[{"address":"10.1.2.3/24"}]}}'
)
"""The record that cnitool writes at ADD, with libcni's fields in libcni's order."""


async def test_a_record_has_the_format_of_libcni(files: FileCache, tmp_path: Path) -> None:
    """File name, mode and fields are libcni's; our own fields come last."""
    await files.put(CACHED)
    file = tmp_path / "results" / "blue-c1-eth0"
    assert json.loads(read(file)) == {
        "kind": "cniCacheV1",
        "containerId": "c1",
        "config": base64.b64encode(json.dumps(LIST, separators=(",", ":")).encode()).decode(),
        "ifName": "eth0",
        "networkName": "blue",
        "netns": "/run/netns/c1",
        "cniArgs": [["FOO", "BAR"], ["EMPTY", ""]],
        "capabilityArgs": {"mac": "c2:11:22:33:44:55"},
        "result": RESULT,
        "bootId": "0c1f",
        "answered": 1,
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert names(tmp_path) == ["results"]


@pytest.mark.parametrize("deleted", [frozenset(), frozenset({2, 1})])
async def test_the_progress_of_a_delete_is_stored(files: FileCache, tmp_path: Path, deleted: frozenset[int]) -> None:
    """It comes after libcni's fields; an empty set means that DEL has begun."""
    await files.put(replace(CACHED, deleted=deleted))
    assert json.loads(read(tmp_path / "results" / "blue-c1-eth0"))["deleted"] == sorted(deleted)
    found = await files.find("blue", KEY)
    assert found is not None
    assert found.deleted == deleted


@pytest.mark.parametrize("deleted", ["{}", '["1"]', "[true]", "[1.5]"])
async def test_invalid_progress_is_damage(files: FileCache, tmp_path: Path, deleted: str) -> None:
    """Which plugins have completed must not be guessed."""
    write_record(tmp_path, LIBCNI[:-1] + f',"deleted":{deleted}}}')
    with pytest.raises(CacheDamaged):
        await files.find("blue", KEY)


async def test_empty_fields_are_omitted(files: FileCache, tmp_path: Path) -> None:
    """Libcni omits them too; network name and IDs are always present."""
    await files.put(replace(cached("blue", "c1"), result=None, boot_id="", added_plugins=None))
    assert list(json.loads(read(tmp_path / "results" / "blue-c1-eth0"))) == [
        "kind",
        "containerId",
        "config",
        "ifName",
        "networkName",
        "netns",
    ]


async def test_a_record_of_libcni_is_read(files: FileCache, tmp_path: Path) -> None:
    """An attachment that cnitool added is found, listed and removed."""
    file = write_record(tmp_path, LIBCNI)
    found = await files.find("blue", KEY)
    assert found is not None
    assert found.attachment == replace(CACHED.attachment, args=(("FOO", "BAR"),))
    assert found.configuration.document == {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge"}]}
    assert found.result == {"cniVersion": "1.0.0", "dns": {}, "ips": [{"address": "10.1.2.3/24"}]}
    assert (found.boot_id, found.added_plugins) == ("", None)
    assert await files.list("blue") == (found,)
    await files.remove("blue", KEY)
    assert not file.exists()


@pytest.mark.parametrize("config", ["", "%%%", base64.b64encode(b"{").decode(), base64.b64encode(b"[]").decode()])
async def test_a_record_without_a_valid_configuration_is_damaged(files: FileCache, tmp_path: Path, config: str) -> None:
    """DEL would not know which plugins to run."""
    write_record(tmp_path, json.dumps(json.loads(LIBCNI) | {"config": config}))
    with pytest.raises(CacheDamaged):
        await files.find("blue", KEY)


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
