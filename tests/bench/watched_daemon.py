# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.bench.watched_daemon REPORT …`: the daemon, and how long its event loop is blocked.

The options are those of `cni-bridge serve`. REPORT gets a line for each time that the event loop was blocked for more
than ten milliseconds: when that ended (by the monotonic clock), how long it took, the CPU time of the loop's own thread
meanwhile, and how long that thread waited for a processor, all in seconds. The rest is the wait for other threads.

Like the command itself it imports nothing else before the plugin socket is open.
"""

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

from cnm_bridge.operator.cli.main import main

_BEAT_S: Final = 0.002
_REPORTED_S: Final = 0.01
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")


def _queued_s() -> float:
    """Return how long the calling thread was ready and had no processor (the kernel's sched-stats.rst)."""
    return int(_SCHEDULED.read_text().split()[1]) / 1e9


async def _beat(report: Path) -> None:
    with report.open("a", buffering=1) as file:
        while True:
            queued = _queued_s()
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(_BEAT_S)
            blocked = time.monotonic() - wall - _BEAT_S
            if blocked > _REPORTED_S:
                file.write(f"{time.monotonic()} {blocked} {time.thread_time() - cpu} {_queued_s() - queued}\n")


def watch(report: Path) -> None:
    """Watch the event loop that this process will run."""
    run = asyncio.run

    async def watched(work: Coroutine[object, object, None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            beating = tasks.create_task(_beat(report))
            await work
            beating.cancel()

    asyncio.run = lambda work: run(watched(work))  # type: ignore[assignment, misc]


if __name__ == "__main__":
    watch(Path(sys.argv.pop(1)))
    main()
