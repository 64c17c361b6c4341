# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk, as libcni writes and reads it."""

import base64
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import CacheDamaged, FileCache
from tests.unit.cni_invoker.cached_attachments import CACHED, KEY, LIST, RESULT, cached, names, read, write_record


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
"""What cnitool leaves after an ADD, in the order of libcni's own fields."""


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


@pytest.mark.parametrize("deleted", [frozenset(), frozenset({2, 1})])
async def test_how_far_a_delete_has_come_is_kept(files: FileCache, tmp_path: Path, deleted: frozenset[int]) -> None:
    """It stands behind libcni's fields; that a DEL has begun is kept too."""
    await files.put(replace(CACHED, deleted=deleted))
    assert json.loads(read(tmp_path / "results" / "blue-c1-eth0"))["deleted"] == sorted(deleted)
    found = await files.find("blue", KEY)
    assert found is not None
    assert found.deleted == deleted


@pytest.mark.parametrize("deleted", ["{}", '["1"]', "[true]", "[1.5]"])
async def test_what_is_no_progress_is_damaged(files: FileCache, tmp_path: Path, deleted: str) -> None:
    """It must not be guessed which plugins have completed."""
    write_record(tmp_path, LIBCNI[:-1] + f',"deleted":{deleted}}}')
    with pytest.raises(CacheDamaged):
        await files.find("blue", KEY)


async def test_what_there_is_nothing_of_is_left_out(files: FileCache, tmp_path: Path) -> None:
    """As libcni does; the name and the ID are always there."""
    await files.put(replace(cached("blue", "c1"), configuration=None, result=None, boot_id="", added_plugins=None))
    assert list(json.loads(read(tmp_path / "results" / "blue-c1-eth0"))) == [
        "kind",
        "containerId",
        "ifName",
        "networkName",
        "netns",
    ]


async def test_libcnis_file_is_read(files: FileCache, tmp_path: Path) -> None:
    """An attachment that cnitool has made is found, listed and removed."""
    file = write_record(tmp_path, LIBCNI)
    found = await files.find("blue", KEY)
    assert found is not None
    assert found.attachment == replace(CACHED.attachment, args=(("FOO", "BAR"),))
    assert found.configuration == {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge"}]}
    assert found.result == {"cniVersion": "1.0.0", "dns": {}, "ips": [{"address": "10.1.2.3/24"}]}
    assert (found.boot_id, found.added_plugins) == ("", None)
    assert await files.list("blue") == (found,)
    await files.remove("blue", KEY)
    assert not file.exists()


async def test_a_legacy_file_is_a_bare_result(files: FileCache, tmp_path: Path) -> None:
    """The cache of before 2019 had the result alone; whose it is only its name tells, so that it is not listed."""
    file = write_record(tmp_path, json.dumps(RESULT))
    found = await files.find("blue", KEY)
    assert found is not None
    assert (found.result, found.configuration, found.attachment.netns) == (RESULT, None, "")
    assert await files.list() == ()
    with pytest.raises(CacheDamaged, match="a result alone"):
        await files.list("blue", whole=True)
    assert await files.list("red", whole=True) == ()
    await files.remove("blue", KEY)
    assert not file.exists()


@pytest.mark.parametrize("config", ["", "%%%", base64.b64encode(b"{").decode(), base64.b64encode(b"[]").decode()])
async def test_a_lost_configuration(files: FileCache, tmp_path: Path, config: str) -> None:
    """The rest of an attachment is still good for its DEL."""
    document = json.loads(LIBCNI) | {"config": config}
    write_record(tmp_path, json.dumps(document))
    found = await files.find("blue", KEY)
    assert found is not None
    assert (found.configuration, found.attachment.netns) == (None, "/run/netns/c1")
