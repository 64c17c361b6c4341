# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachment cache on disk has libcni's format."""

import base64
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import FileCache
from cni_invoker.errors import CacheDamaged
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
