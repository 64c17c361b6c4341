# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One runtime serves many tasks at once."""

import asyncio
from pathlib import Path

import pytest

from cni_invoker import Attachment, AttachmentKey, Limits, NetworkConfigurationList, Runtime
from cni_tool import CachedRuntime, FileCache

PLAIN = """#!/bin/sh
# Fails if two plugins work for one container at once; GC must run alone.
directory="${0%/*}"
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit;;
  GC) held="$directory/held.gc";;
  *) held="$directory/held.$CNI_CONTAINERID";;
esac
mkdir "$held" || { echo '{"code":999,"msg":"two at once"}'; exit 1; }
[ "$CNI_COMMAND" != GC ] || for other in "$directory"/held.c*; do
  [ ! -d "$other" ] || { rmdir "$held"; echo '{"code":999,"msg":"not alone"}'; exit 1; }
done
echo "$CNI_COMMAND" >> "$directory/calls"
echo '{"cniVersion":"1.1.0"}'
rmdir "$held"
"""
"""A plugin without an interpreter of its own, so that a thousand executions take some seconds."""
TASKS = 16
LIVES = 12

BLUE = NetworkConfigurationList.from_document(
    {"name": "blue", "cniVersions": ["1.0.0", "1.1.0"], "plugins": [{"type": "plain", "ipMasq": True}]}
)


@pytest.fixture(name="plain")
def make_plain(tmp_path: Path) -> Path:
    """A directory with one fast plugin, which notices when it does not run alone."""
    plugin = tmp_path / "plain"
    plugin.write_text(PLAIN)
    plugin.chmod(0o755)
    return tmp_path


def attachment(number: int) -> Attachment:
    """Return the attachment of the container with a number."""
    return Attachment(container_id=f"c{number}", ifname="eth0", netns=f"/run/netns/c{number}")


async def live(runtime: CachedRuntime, number: int) -> None:
    """Add a container and delete it."""
    await runtime.add(BLUE, attachment(number))
    await runtime.delete(BLUE, attachment(number))


@pytest.mark.slow
async def test_many_operations_of_many_tasks(plain: Path, tmp_path: Path) -> None:
    """One container is used by one at a time, and GC runs alone; the plugin fails otherwise."""
    runtime = CachedRuntime(Runtime([plain], Limits(executions=4)), FileCache(tmp_path / "cache"))
    valid = [AttachmentKey(container_id=f"c{number}", ifname="eth0") for number in range(TASKS)]

    async def task(number: int) -> None:
        for life in range(LIVES):
            await live(runtime, number)
            if life % 6 == number % 6:
                await runtime.gc(BLUE, valid)

    async with asyncio.TaskGroup() as tasks:
        for number in range(TASKS):
            tasks.create_task(task(number))
    calls = (plain / "calls").read_text().split()
    assert (calls.count("ADD"), calls.count("DEL")) == (TASKS * LIVES, TASKS * LIVES)
    assert calls.count("GC") > TASKS
