# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about the cache of attachments: the files, their form, and lost or damaged ones."""

import base64
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_list, get_object, get_str, get_strings, parse_json
from cni_invoker import AttachmentKey, CachedAttachment
from cni_invoker.errors import CacheDamaged, CacheError, InvalidParameter
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, Scene, network, three_plugins

__all__ = ["RUNNERS"]

KEY: Final = ATTACHMENT.key
RESULT: Final[JsonObject] = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}


async def written(case: Case, scene: Scene) -> None:
    """After ADD there is a file as libcni writes it, readable only by root."""
    scene.install("one", "noop", "three", ADD={"result": RESULT})
    wanted = three_plugins()
    attachment = replace(ATTACHMENT, ifname="some-eth0")
    await scene.cached_runtime().add(wanted, attachment)
    assert case.expect["file"] == "<cache>/results/some-list-some-container-id-some-eth0"
    file = scene.cache_dir / "results" / "some-list-some-container-id-some-eth0"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]
    record = as_object(parse_json(file.read_bytes()), "the record")
    assert set(get_object(case.expect, "json")) <= set(record)
    assert get_str(record, "kind") == "cniCacheV1"
    assert parse_json(base64.b64decode(get_str(record, "config"))) == wanted.document
    assert [record[key] for key in ("containerId", "ifName", "networkName", "netns")] == [
        attachment.container_id,
        attachment.ifname,
        wanted.name,
        attachment.netns,
    ]
    assert record["cniArgs"] == [["FOO", "BAR"]]
    assert record["capabilityArgs"] == attachment.capability_args
    assert record["result"] == RESULT


async def no_directory(_: Case, scene: Scene) -> None:
    """If the cache cannot be written, no plugin runs."""
    scene.install("one", "noop", "three")
    scene.cache_dir.mkdir()
    (scene.cache_dir / "results").write_text("a regular file")
    with pytest.raises(CacheError):
        await scene.cached_runtime().add(three_plugins(), ATTACHMENT)
    assert scene.calls == ()


async def two_interfaces(case: Case, scene: Scene) -> None:
    """Each interface of a container has a file of its own."""
    scene.install("foo")
    for ifname in ("eth0", "eth1"):
        await scene.cached_runtime().add(network({"type": "foo"}, name="cachetest"), replace(ATTACHMENT, ifname=ifname))
    files = sorted(path.name for path in (scene.cache_dir / "results").iterdir())
    assert tuple(files) == get_strings(case.expect, "files")


async def incomplete_key(case: Case, scene: Scene) -> None:
    """A look-up without network, container ID or interface is refused."""
    assert get_strings(case.inputs, "missing") == ("network name", "container id", "ifname")
    with pytest.raises(InvalidParameter) as caught:
        await scene.cache.find("", KEY)
    case.expects("error_prefix", str(caught.value))
    with pytest.raises(InvalidParameter, match="container ID"):
        AttachmentKey(container_id="", ifname="eth0")
    with pytest.raises(InvalidParameter, match="interface name"):
        AttachmentKey(container_id="c1", ifname="")


async def unreadable(case: Case, scene: Scene) -> None:
    """A damaged file is an error; a missing one is not."""
    assert case.expect["missing"] == "none, no error"
    assert await scene.cache.find("some-list", KEY) is None
    scene.write_cache(b"adfadfasdfasfdsafaf")
    with pytest.raises(CacheDamaged):
        await scene.cache.find("some-list", KEY)


async def unambiguous(case: Case, scene: Scene) -> None:
    """Attachments to which libcni gives the same file name have different files."""
    kept: list[CachedAttachment] = []
    for names in get_list(case.inputs, "attachments"):
        assert isinstance(names, list)
        name, container_id, ifname = map(str, names)
        attachment = replace(ATTACHMENT, container_id=container_id, ifname=ifname)
        kept.append(
            CachedAttachment(
                network=name, attachment=attachment, configuration={"name": name}, result=None, boot_id="b"
            )
        )
        await scene.cache.put(kept[-1])
    for cached in kept:
        assert await scene.cache.find(cached.network, cached.attachment.key) == cached
    await scene.cache.remove(kept[0].network, kept[0].attachment.key)
    assert await scene.cache.list() == (kept[1],)


async def durable(_: Case, scene: Scene) -> None:
    """A file is replaced atomically and records the boot; an empty file does not prevent DEL."""
    scene.install("one", "noop", "three", ADD={"result": RESULT})
    runtime = scene.cached_runtime()
    await runtime.add(three_plugins(), ATTACHMENT)
    (file,) = (scene.cache_dir / "results").iterdir()
    before = file.stat().st_ino
    (cached,) = await scene.cache.list()
    assert cached.boot_id == scene.boot_id
    with file.open("rb") as opened:
        await scene.cache.put(replace(cached, boot_id="another"))
        assert os.fstat(opened.fileno()).st_ino == before != file.stat().st_ino
        assert b"another" not in opened.read()
    file.write_bytes(b"")
    await runtime.delete(three_plugins(), ATTACHMENT)
    assert not file.exists()
    assert [verb for _, verb in scene.calls[3:]] == ["DEL"] * 3


RUNNERS: Final[Mapping[str, Runner]] = {
    "add-002": written,
    "add-006": no_directory,
    "cache-001": two_interfaces,
    "cache-003": incomplete_key,
    "cache-004": unreadable,
    "cache-006": unambiguous,
    "cache-007": durable,
}
