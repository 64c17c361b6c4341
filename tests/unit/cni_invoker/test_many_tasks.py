# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One runtime serves many tasks, and one event loop after the other."""

import asyncio
from pathlib import Path

import pytest

from cni_invoker import Attachment, AttachmentKey, CachedRuntime, FileCache, Limits, NetworkConfigurationList, Runtime

TASKS = 16
LIVES = 12

BLUE = NetworkConfigurationList.from_document(
    {"name": "blue", "cniVersions": ["1.0.0", "1.1.0"], "plugins": [{"type": "plain", "ipMasq": True}]}
)


def attachment(number: int) -> Attachment:
    """Return the attachment of the container with a number."""
    return Attachment(container_id=f"c{number}", ifname="eth0", netns=f"/run/netns/c{number}")


async def live(runtime: CachedRuntime, number: int) -> None:
    """Add a container and delete it."""
    await runtime.add(BLUE, attachment(number))
    await runtime.delete(BLUE, attachment(number))


def test_a_second_event_loop(plain: Path, tmp_path: Path) -> None:
    """A runtime works in one event loop after the other, although tasks have waited for each other in the first."""
    runtime = CachedRuntime(Runtime([plain], Limits(executions=1)), FileCache(tmp_path / "cache"))

    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(live(runtime, number))

    for _ in range(2):
        asyncio.run(several())


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
