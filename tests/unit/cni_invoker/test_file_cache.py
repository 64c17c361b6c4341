# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment caches: what all of them do, and what the one on disk owes to libcni."""

import asyncio
import base64
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    AttachmentCache,
    AttachmentExists,
    AttachmentKey,
    CacheDamaged,
    CachedAttachment,
    CacheError,
    FileCache,
    InvalidParameter,
    MemoryCache,
    NetworkBusy,
)
from spec import JsonObject

LIST: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge", "number": 9007199254740993}]}
RESULT: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}]}
CACHED = CachedAttachment(
    network="blue",
    attachment=Attachment(
        container_id="c1",
        ifname="eth0",
        netns="/run/netns/c1",
        args=(("FOO", "BAR"), ("EMPTY", "")),
        capability_args={"mac": "c2:11:22:33:44:55"},
    ),
    configuration=LIST,
    result=RESULT,
    boot_id="0c1f",
    answered=1,
)
KEY = CACHED.attachment.key

LIBCNI = (
    '{"kind":"cniCacheV1","containerId":"c1",'
    '"config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoiYmx1ZSIsInBsdWdpbnMiOlt7InR5cGUiOiJicmlkZ2UifV19",'
    '"ifName":"eth0","networkName":"blue","netns":"/run/netns/c1","cniArgs":[["FOO","BAR"]],'
    '"capabilityArgs":{"mac":"c2:11:22:33:44:55"},'
    '"result":{"cniVersion":"1.0.0","dns":{},"ips":[{"address":"10.1.2.3/24"}]}}'
)
"""What cnitool leaves after an ADD, in the order of libcni's own fields."""


def cached(network: str, container_id: str, ifname: str = "eth0") -> CachedAttachment:
    """Make an attachment."""
    attachment = Attachment(container_id=container_id, ifname=ifname, netns="/run/netns/x")
    return replace(CACHED, network=network, attachment=attachment)


def place(directory: Path, content: str | bytes, name: str = "blue-c1-eth0") -> Path:
    """Put a file where an attachment would be."""
    file = directory / "results" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def read(file: Path) -> bytes:
    """Give the content of a file."""
    return file.read_bytes()


def names(directory: Path) -> list[str]:
    """Give the names in a directory."""
    return sorted(path.name for path in directory.iterdir())


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock that a writer in another process would have."""
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


@pytest.fixture(name="cache", params=["memory", "file"])
def make_cache(request: pytest.FixtureRequest, tmp_path: Path) -> AttachmentCache:
    """Every cache that can be written."""
    return MemoryCache() if request.param == "memory" else FileCache(tmp_path)


async def test_what_is_kept_comes_back(cache: AttachmentCache) -> None:
    """All of an attachment is found again, with or without a result, until it is removed."""
    assert await cache.find("blue", KEY) is None
    await cache.put(replace(CACHED, result=None, answered=0))
    assert await cache.find("blue", KEY) == replace(CACHED, result=None, answered=0)
    await cache.put(CACHED)
    assert await cache.find("blue", KEY) == CACHED
    await cache.remove("blue", KEY)
    assert await cache.find("blue", KEY) is None
    await cache.remove("blue", KEY)


async def test_attachments_are_told_apart(cache: AttachmentCache) -> None:
    """Network, container ID and interface name together make an attachment, whatever dashes are in them."""
    there = [("a", "b-c", "eth0"), ("a-b", "c", "eth0"), ("a", "b", "c-eth0"), ("a", "b-c", "eth1")]
    for network, container_id, ifname in there:
        await cache.put(cached(network, container_id, ifname))
    assert len(await cache.list()) == len(there)
    assert [one.network for one in await cache.list("a-b")] == ["a-b"]
    for network, container_id, ifname in there:
        wanted = cached(network, container_id, ifname)
        assert await cache.find(network, wanted.attachment.key) == wanted
        await cache.remove(network, wanted.attachment.key)
        assert await cache.find(network, wanted.attachment.key) is None
    assert await cache.list() == ()


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("leaving", [0, 1])
async def test_one_of_two_with_the_same_file_name_is_removed(files: FileCache, swapped: bool, leaving: int) -> None:
    """Whichever of them came first, removing one leaves the other, and the next state of each replaces its own."""
    both = [cached("a", "b-c"), cached("a-b", "c")]
    if swapped:
        both.reverse()
    for one in both:
        await files.put(one)
    gone = both.pop(leaving)
    await files.remove(gone.network, gone.attachment.key)
    assert await files.list() == tuple(both)
    changed = replace(both[0], result=None)
    await files.put(changed)
    assert await files.list() == (changed,)
    await files.remove(changed.network, changed.attachment.key)
    assert await files.list() == ()


async def test_what_must_be_new(cache: AttachmentCache) -> None:
    """Of two who find nothing and put, the second is refused, and changes nothing."""
    await cache.put(CACHED, new=True)
    with pytest.raises(AttachmentExists):
        await cache.put(replace(CACHED, result=None), new=True)
    assert await cache.list() == (CACHED,)


async def test_what_is_damaged_is_as_good_as_new(files: FileCache, tmp_path: Path) -> None:
    """Nobody is kept from adding by a file that says nothing."""
    place(tmp_path, b"garbage")
    await files.put(CACHED, new=True)
    assert await files.find("blue", KEY) == CACHED


@pytest.mark.parametrize("length", [238, 239, 255])
async def test_a_long_file_name(files: FileCache, tmp_path: Path, length: int) -> None:
    """What libcni can keep, we can, also where there is no room for a hash behind it."""
    one = cached("blue", "c" * (length - len("blue--eth0")))
    await files.put(one)
    assert [len(name) for name in names(tmp_path / "results")] == [length]
    assert await files.find("blue", one.attachment.key) == one
    await files.remove("blue", one.attachment.key)
    assert await files.list() == ()


@pytest.mark.parametrize(
    ("network", "container_id", "waits"),
    [("blue", "c1", True), ("red", "c1", True), ("blue", "c2", False), ("blue", None, True), ("red", None, False)],
)
async def test_processes_are_kept_apart(
    files: FileCache, tmp_path: Path, network: str, container_id: str | None, waits: bool
) -> None:
    """On a container they work one by one, whatever the network, and GC on a network alone; nothing is left behind."""
    other = FileCache(tmp_path)
    async with files.hold("blue", "c1", wait_s=0):
        if waits:
            with pytest.raises(NetworkBusy):
                async with other.hold(network, container_id, wait_s=0):
                    pytest.fail("it should wait")
        else:
            async with other.hold(network, container_id, wait_s=0):
                pass
    async with other.hold(network, container_id, wait_s=0):
        pass
    assert set(names(tmp_path / "locks")) == {"blue", network}


async def test_gc_keeps_others_off(files: FileCache, tmp_path: Path) -> None:
    """Nobody works on a network while another process has it alone."""
    async with files.hold("blue", None, wait_s=0):
        for container_id in ("c1", None):
            with pytest.raises(NetworkBusy):
                async with FileCache(tmp_path).hold("blue", container_id, wait_s=0):
                    pytest.fail("it should wait")


async def test_the_file_is_libcnis(files: FileCache, tmp_path: Path) -> None:
    """Its name, mode and content are what libcni would write; what is ours stands behind it."""
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


async def test_what_there_is_nothing_of_is_left_out(files: FileCache, tmp_path: Path) -> None:
    """As libcni does; the name and the ID are always there."""
    await files.put(replace(cached("blue", "c1"), configuration=None, result=None, boot_id="", answered=None))
    assert list(json.loads(read(tmp_path / "results" / "blue-c1-eth0"))) == [
        "kind",
        "containerId",
        "ifName",
        "networkName",
        "netns",
    ]


async def test_libcnis_file_is_read(files: FileCache, tmp_path: Path) -> None:
    """An attachment that cnitool has made is found, listed and removed."""
    file = place(tmp_path, LIBCNI)
    found = await files.find("blue", KEY)
    assert found is not None
    assert found.attachment == replace(CACHED.attachment, args=(("FOO", "BAR"),))
    assert found.configuration == {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge"}]}
    assert found.result == {"cniVersion": "1.0.0", "dns": {}, "ips": [{"address": "10.1.2.3/24"}]}
    assert (found.boot_id, found.answered) == ("", None)
    assert await files.list("blue") == (found,)
    await files.remove("blue", KEY)
    assert not file.exists()


async def test_a_legacy_file_is_a_bare_result(files: FileCache, tmp_path: Path) -> None:
    """The cache of before 2019 had the result alone; whose it is only its name tells, so that it is not listed."""
    file = place(tmp_path, json.dumps(RESULT))
    found = await files.find("blue", KEY)
    assert found is not None
    assert (found.result, found.configuration, found.attachment.netns) == (RESULT, None, "")
    assert await files.list() == ()
    await files.remove("blue", KEY)
    assert not file.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"adfadsfasdfasfdsafaf",
        b'{"kind":"cniCac',
        b"[]",
        b'{"kind":"cniCacheV2"}',
        b'{"kind":1}',
        b'{"kind":"cniCacheV1","ifName":"eth0","networkName":"blue"}',
        b'{"kind":"cniCacheV1","containerId":"../c1","ifName":"eth0","networkName":"blue"}',
        b'{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"blue","cniArgs":[["A"]]}',
        b'{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"blue","result":"none"}',
        b"\xff\xfe",
    ],
)
async def test_a_broken_file(files: FileCache, tmp_path: Path, content: bytes) -> None:
    """It is an error that names it, hides no other file, and can be replaced and removed."""
    file = place(tmp_path, content)
    with pytest.raises(CacheDamaged, match=str(file)) as caught:
        await files.find("blue", KEY)
    assert (caught.value.place, caught.value.code) == (file, 6)
    await files.put(cached("red", "c2"))
    assert await files.list() == (cached("red", "c2"),)
    await files.put(CACHED)
    assert await files.find("blue", KEY) == CACHED
    file.write_bytes(content)
    await files.remove("blue", KEY)
    assert not file.exists()


@pytest.mark.parametrize("config", ["", "%%%", base64.b64encode(b"{").decode(), base64.b64encode(b"[]").decode()])
async def test_a_lost_configuration(files: FileCache, tmp_path: Path, config: str) -> None:
    """The rest of an attachment is still good for its DEL."""
    document = json.loads(LIBCNI) | {"config": config}
    place(tmp_path, json.dumps(document))
    found = await files.find("blue", KEY)
    assert found is not None
    assert (found.configuration, found.attachment.netns) == (None, "/run/netns/c1")


async def test_what_is_no_file(files: FileCache, tmp_path: Path) -> None:
    """A directory or a FIFO in a file's place is damage, and nobody waits for a writer."""
    file = place(tmp_path, b"")
    file.unlink()
    os.mkfifo(file)
    (file.parent / "folder").mkdir()
    async with asyncio.timeout(5):
        with pytest.raises(CacheDamaged, match="not a regular file"):
            await files.find("blue", KEY)
        assert await files.list() == ()


async def test_a_cache_that_cannot_be_used(files: FileCache, tmp_path: Path) -> None:
    """That there is no directory to keep anything in is an error for every method, not an empty cache."""
    assert await files.list() == ()
    (tmp_path / "results").write_bytes(b"")
    for attempt in (files.put(CACHED), files.find("blue", KEY), files.remove("blue", KEY), files.list()):
        with pytest.raises(CacheError, match="results") as caught:
            await attempt
        assert not isinstance(caught.value, CacheDamaged)


async def test_a_failed_write_changes_nothing(files: FileCache, tmp_path: Path) -> None:
    """The earlier state stays whole when the next one cannot be written."""
    await files.put(replace(CACHED, result=None))
    (tmp_path / "results.new").mkdir()
    with pytest.raises(CacheError):
        await files.put(CACHED)
    assert await files.find("blue", KEY) == replace(CACHED, result=None)


async def test_a_leftover_of_a_crash_is_overwritten(files: FileCache, tmp_path: Path) -> None:
    """A half-written file is neither listed, by libcni least of all, nor in the way."""
    (tmp_path / "results.new").write_text("x" * 10_000)
    await files.put(CACHED)
    assert await files.list() == (CACHED,)


async def test_many_at_once(files: FileCache) -> None:
    """Writers do not disturb one another."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(files.put(cached("blue", f"c{number:02}")))
    assert [one.attachment.container_id for one in await files.list()] == [f"c{number:02}" for number in range(20)]


async def test_cancellation_waits_for_the_write(files: FileCache, tmp_path: Path) -> None:
    """What is cancelled has happened or not when the cancellation arrives; nothing follows later."""
    await files.put(cached("red", "c2"))
    with held(tmp_path / "results"):
        task = asyncio.get_running_loop().create_task(files.put(CACHED))
        for _ in range(2):
            await asyncio.wait((task,), timeout=0.1)
            task.cancel()
        assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await files.find("blue", KEY) == CACHED


async def test_a_lock_that_is_not_given_back(files: FileCache, tmp_path: Path) -> None:
    """It is an error after a while, and nothing has changed; reading needs no lock."""
    await files.put(CACHED)
    impatient = FileCache(tmp_path, lock_s=0.05)
    with held(tmp_path / "results"):
        for attempt in (impatient.put(cached("red", "c2")), impatient.remove("blue", KEY)):
            with pytest.raises(CacheError, match=r"another process has had its lock for 0\.05 s"):
                await attempt
        assert await impatient.list() == (CACHED,)


async def test_no_name_leads_out_of_the_directory(files: FileCache) -> None:
    """Names that CNI does not allow are refused before they become a path."""
    with pytest.raises(InvalidParameter):
        await files.find("../blue", KEY)
    with pytest.raises(InvalidParameter):
        await files.find("", KEY)
    with pytest.raises(InvalidParameter):
        AttachmentKey(container_id="../c1", ifname="eth0")
