# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk: file names, damage, and failed writes."""

import asyncio
import os
from dataclasses import replace
from errno import EIO
from pathlib import Path

import pytest

from cni_invoker import AttachmentKey
from cni_invoker.errors import InvalidParameter
from cni_tool import AttachmentExists, CacheDamaged, CacheError, FileCache
from extras.cni_tool.tests.unit.cached_attachments import CACHED, KEY, cached, names, read, write_record


@pytest.fixture(name="files")
def make_files(tmp_path: Path) -> FileCache:
    """A cache on disk."""
    return FileCache(tmp_path)


async def test_a_new_attachment_that_exists(files: FileCache) -> None:
    """Another process has added it meanwhile: its record stays."""
    await files.put(CACHED, new=True)
    with pytest.raises(AttachmentExists):
        await files.put(replace(CACHED, result=None), new=True)
    assert await files.list() == (CACHED,)


async def test_a_file_of_another_attachment_is_kept(files: FileCache) -> None:
    """Two attachments may share a name: the second is refused, not found, and its removal removes nothing."""
    first, second = cached("a", "b-c"), cached("a-b", "c")
    await files.put(first, new=True)
    with pytest.raises(CacheError, match="is that of b-c/eth0 on a"):
        await files.put(second, new=True)
    assert await files.find("a-b", second.attachment.key) is None
    await files.remove("a-b", second.attachment.key)
    assert await files.list() == (first,)


@pytest.mark.parametrize("length", [238, 255])
async def test_a_record_may_have_the_longest_file_name(files: FileCache, tmp_path: Path, length: int) -> None:
    """A longer one is an error before anything runs."""
    one = cached("blue", "c" * (length - len("blue--eth0")))
    await files.put(one)
    assert [len(name) for name in names(tmp_path / "results")] == [length]
    assert names(tmp_path) == ["results"]
    assert await files.find("blue", one.attachment.key) == one
    await files.remove("blue", one.attachment.key)
    assert await files.list() == ()
    with pytest.raises(CacheError, match="File name too long"):
        await files.put(cached("blue", "c" * 255), new=True)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"adfadsfasdfasfdsafaf",
        b'{"kind":"cniCac',
        b"[]",
        b'{"kind":1}',
        b'{"cniVersion":"1.0.0","ips":[]}',  # of libcni before 0.8: the result alone
        b'{"kind":"cniCacheV1","ifName":"eth0","networkName":"blue"}',
        b'{"kind":"cniCacheV1","containerId":"../c1","ifName":"eth0","networkName":"blue"}',
        b'{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"blue","cniArgs":[["A"]]}',
        b'{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"blue","result":"none"}',
        b"\xff\xfe",
        b'{"kind":"","containerId":"c1","ifName":"eth0","networkName":"blue"}',
    ],
)
async def test_a_damaged_record_is_an_error_that_names_its_file(
    files: FileCache, tmp_path: Path, content: bytes
) -> None:
    """It hides no other record, and can be replaced and removed."""
    file = write_record(tmp_path, content)
    with pytest.raises(CacheDamaged, match=f"failed to get cached result: .*{file}") as caught:
        await files.find("blue", KEY)
    assert (caught.value.place, caught.value.code) == (file, 6)
    await files.put(cached("red", "c2"))
    assert await files.list() == (cached("red", "c2"),)
    await files.put(CACHED, new=True)
    assert await files.find("blue", KEY) == CACHED
    file.write_bytes(content)
    await files.remove("blue", KEY)
    assert not file.exists()


async def test_a_record_of_an_unknown_kind_is_kept(files: FileCache, tmp_path: Path) -> None:
    """A newer libcni may have written it, in the same directory: it is not damaged, and is neither read nor changed."""
    content = b'{"kind":"cniCacheV2","containerId":"c1","ifName":"eth0","networkName":"blue"}'
    file = write_record(tmp_path, content)
    for attempt in (
        files.find("blue", KEY),
        files.find_readable("blue", KEY),
        files.put(CACHED),
        files.put(CACHED, new=True),
        files.remove("blue", KEY),
        files.list(whole=True),
    ):
        with pytest.raises(CacheError, match="of the kind 'cniCacheV2', and only 'cniCacheV1' is known") as caught:
            await attempt
        assert not isinstance(caught.value, CacheDamaged)
    assert await files.list() == ()
    assert read(file) == content


async def test_a_record_that_is_no_regular_file_is_damaged(files: FileCache, tmp_path: Path) -> None:
    """Reading a FIFO does not wait for a writer; a directory is not listed."""
    file = write_record(tmp_path, b"")
    file.unlink()
    os.mkfifo(file)
    (file.parent / "folder").mkdir()
    async with asyncio.timeout(5):
        with pytest.raises(CacheDamaged, match="not a regular file"):
            await files.find("blue", KEY)
        assert await files.list() == ()


async def test_an_unusable_cache_directory_is_an_error(files: FileCache, tmp_path: Path) -> None:
    """Every method raises CacheError; the cache does not count as empty."""
    assert await files.list() == ()
    (tmp_path / "results").write_bytes(b"")
    for attempt in (files.put(CACHED), files.find("blue", KEY), files.remove("blue", KEY), files.list()):
        with pytest.raises(CacheError, match="results") as caught:
            await attempt
        assert not isinstance(caught.value, CacheDamaged)


async def test_a_new_attachment_is_synced_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is synced with its name, and so are new parent directories; a later state before it replaces another."""
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def seen_fsync(descriptor: int) -> None:
        fsync(descriptor)
        steps.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path.parent)}")

    def seen_rename(source: Path, target: Path) -> None:
        assert source.stat().st_size > 0
        rename(source, target)
        steps.append(f"rename {target.name}")

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "rename", seen_rename)
    here = tmp_path.name
    files = FileCache(tmp_path / "lib" / "cni")
    async with files.hold("blue", "c1", wait_s=10):
        assert steps == [f"fsync {here}", f"fsync {here}/lib"]
        await files.put(replace(CACHED, result=None), new=True)
    assert steps[2:] == [f"fsync {here}/lib/cni", "rename blue-c1-eth0", f"fsync {here}/lib/cni/results/blue-c1-eth0"]
    steps.clear()
    await files.put(CACHED)
    assert [step.rpartition(".")[2] for step in steps] == ["new", "rename blue-c1-eth0"]
    steps.clear()
    await files.remove("blue", KEY)
    assert not steps
    assert names(tmp_path / "lib/cni") == ["lock", "results"]


async def cut_off_put(files: FileCache, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that is left of a put that has not completed."""

    def end_before(source: Path, _: Path) -> None:
        raise OSError(EIO, f"killed before {source.name} was renamed")

    with monkeypatch.context() as kernel:
        kernel.setattr(os, "rename", end_before)
        with pytest.raises(CacheError):
            await files.put(CACHED)
    (name,) = (name for name in names(directory) if name.endswith(".new"))
    return directory / name


async def test_a_failed_write_changes_nothing(
    files: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a write fails, the earlier record stays complete."""
    await files.put(replace(CACHED, result=None))
    left = await cut_off_put(files, tmp_path, monkeypatch)
    left.unlink()
    left.mkdir()
    with pytest.raises(CacheError):
        await files.put(CACHED)
    assert await files.find("blue", KEY) == replace(CACHED, result=None)


async def test_a_partial_file_of_a_crash_is_overwritten(
    files: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial file is not listed, by libcni either, and does not prevent the next put."""
    left = await cut_off_put(files, tmp_path, monkeypatch)
    left.write_text("x" * 10_000)
    assert await files.list() == ()
    await files.put(CACHED)
    assert await files.list() == (CACHED,)
    assert not left.exists()


async def test_a_partial_file_of_a_crash_is_removed(
    files: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEL comes after an ADD that was killed; nothing stays, although nothing was ever stored."""
    left = await cut_off_put(files, tmp_path, monkeypatch)
    await files.remove("blue", KEY)
    assert not left.exists()


async def test_invalid_names_never_become_a_path(files: FileCache) -> None:
    """Names that CNI does not allow are rejected first."""
    with pytest.raises(InvalidParameter):
        await files.find("../blue", KEY)
    with pytest.raises(InvalidParameter):
        await files.find("", KEY)
    with pytest.raises(InvalidParameter):
        AttachmentKey(container_id="../c1", ifname="eth0")
