# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.bench.watched_daemon REPORT …`: the daemon, and how long its event loop stands still.

The options are those of `cni-bridge serve`. REPORT gets a line for each time that the event loop did not get on for
more than ten milliseconds: when that ended (the monotonic clock), how long it took, and how long the loop's own thread
worked meanwhile, all in seconds. What goes beyond that is the wait for other threads, and for other processes.

Like the command itself it imports nothing else before the plugin socket is open.
"""

import asyncio
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Final

from cnm_bridge.cli.main import main

_BEAT_S: Final = 0.002
_WORTH_TELLING_S: Final = 0.01


async def _beat(report: Path) -> None:
    with report.open("a", buffering=1) as file:
        while True:
            wall, cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(_BEAT_S)
            blocked = time.monotonic() - wall - _BEAT_S
            if blocked > _WORTH_TELLING_S:
                file.write(f"{time.monotonic()} {blocked} {time.thread_time() - cpu}\n")


def watch(report: Path) -> None:
    """Have the event loop watched that this process is going to run."""
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
