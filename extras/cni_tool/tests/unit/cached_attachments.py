# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cached attachments, and the files of a cache on disk."""

from dataclasses import replace
from pathlib import Path

from cni_bridge_spec import JsonObject
from cni_invoker import Attachment, NetworkConfigurationList
from cni_tool import CachedAttachment

__all__ = ["CACHED", "KEY", "LIST", "RESULT", "cached", "names", "read", "write_record"]

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
    configuration=NetworkConfigurationList.from_document(LIST),
    result=RESULT,
    boot_id="0c1f",
    added_plugins=1,
)
KEY = CACHED.attachment.key


def cached(network: str, container_id: str) -> CachedAttachment:
    """Return `CACHED` with another network and container ID."""
    attachment = Attachment(container_id=container_id, ifname="eth0", netns="/run/netns/x")
    return replace(CACHED, network=network, attachment=attachment)


def write_record(directory: Path, content: str | bytes) -> Path:
    """Write a file where the cache keeps the record of an attachment."""
    file = directory / "results" / "blue-c1-eth0"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def read(file: Path) -> bytes:
    """Return the content of a file."""
    return file.read_bytes()


def names(directory: Path) -> list[str]:
    """Return the names in a directory, sorted."""
    return sorted(path.name for path in directory.iterdir())
