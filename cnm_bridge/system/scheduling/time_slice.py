# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Divides long work into small slices, so that it does not block the event loop."""

import asyncio
import time
from typing import Final

_SLICE_S: Final = 0.002
"""Short, because another call needs about ten turns of the event loop and each may have to wait for a slice."""


class TimeSlice:
    """Lets other tasks run once the work has used up its slice; until then, a pause costs almost nothing."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SLICE_S

    async def pause(self) -> None:
        """Let other tasks run if the slice is used up; call it between the steps of the work."""
        if time.monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + _SLICE_S
