# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One runtime serves many threads and many event loops."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cni_invoker import Attachment, AttachmentKey, CachedRuntime, Limits, MemoryCache, NetworkConfigurationList, Runtime

THREADS = 16
OPERATIONS = 1000
LIMIT_S = 100.0

BLUE = NetworkConfigurationList.from_document(
    {"name": "blue", "cniVersions": ["1.0.0", "1.1.0"], "plugins": [{"type": "plain", "ipMasq": True}]}
)


def attachment(number: int) -> Attachment:
    """Return the attachment of the container with a number."""
    return Attachment(container_id=f"c{number}", ifname="eth0", netns=f"/run/netns/c{number}")


def in_threads(works: Iterable[Callable[[], None]]) -> None:
    """Run each in a thread of its own, all at once; raise the first error."""
    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result(LIMIT_S)


def in_a_loop(work: Callable[[], Awaitable[object]]) -> Callable[[], None]:
    """Return a function that runs `work` in an event loop of its own."""

    async def run() -> None:
        await work()

    return lambda: asyncio.run(run())


def test_a_second_event_loop(plain: Path) -> None:
    """A runtime works in one event loop after the other, although tasks have waited for each other in the first."""
    runtime = CachedRuntime(Runtime([plain], Limits(executions=1)), MemoryCache())

    async def several() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(4):
                tasks.create_task(_life(runtime, number))

    for _ in range(2):
        asyncio.run(several())


async def _life(runtime: CachedRuntime, number: int) -> None:
    await runtime.add(BLUE, attachment(number))
    await runtime.delete(BLUE, attachment(number))


@pytest.mark.slow
def test_a_thousand_operations_from_sixteen_threads(plain: Path) -> None:
    """Threads with loops of their own share a runtime: one container is used by one at a time, and GC runs alone."""
    runtime = CachedRuntime(Runtime([plain], Limits(executions=4)), MemoryCache())
    lives = OPERATIONS // THREADS // 2
    start = threading.Barrier(THREADS)
    valid = [AttachmentKey(container_id=f"c{number}", ifname="eth0") for number in range(THREADS)]

    def thread(number: int) -> None:
        start.wait(LIMIT_S)
        for life in range(lives):
            in_a_loop(lambda: _life(runtime, number))()
            if life % 10 == number % 10:
                in_a_loop(lambda: runtime.gc(BLUE, valid))()

    in_threads(lambda number=number: thread(number) for number in range(THREADS))  # type: ignore[misc]
    calls = (plain / "calls").read_text().split()
    assert (calls.count("ADD"), calls.count("DEL")) == (THREADS * lives, THREADS * lives)
    assert calls.count("GC") > THREADS


@pytest.mark.slow
def test_one_container_from_many_threads(plain: Path) -> None:
    """DELs of one container from different threads run one after the other."""
    runtime = Runtime([plain], Limits())
    in_threads([in_a_loop(lambda: runtime.delete(BLUE, attachment(1), None)) for _ in range(THREADS)])
    assert (plain / "calls").read_text().split() == ["DEL"] * THREADS
