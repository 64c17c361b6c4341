# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs blocking work in a thread."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; a cancellation waits for its end, so that later work never overlaps it."""
    ended = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        while not ended.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((ended,))
        raise
