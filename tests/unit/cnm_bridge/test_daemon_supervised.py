# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An error in background work is logged with the name of the work, which begins again."""

import asyncio

import pytest
import structlog

from cnm_bridge import daemon as module
from cnm_bridge.daemon import supervised


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)


@pytest.mark.parametrize("error", [RecursionError(), OSError(24, "no descriptor"), ExceptionGroup("", [ValueError()])])
async def test_work_begins_again_after_an_error(error: Exception) -> None:
    """Any number of times; the log has a line a minute, with the traceback."""
    errors = [error] * 3

    async def work() -> None:
        if errors:
            raise errors.pop()

    with structlog.testing.capture_logs() as logged:
        await supervised("teardowns", work)
    assert [(line["event"], line["work"], line["count"], line["exc_info"]) for line in logged] == [
        ("background.bug", "teardowns", 1, True)
    ]


async def test_work_that_is_cancelled_ends() -> None:
    """It is not begun again when the daemon stops."""
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(supervised("endless", work))
        await begun.wait()
        running.cancel()
    assert running.cancelled()
