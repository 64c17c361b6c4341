# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Long work in small slices, so that it does not block the event loop."""

import asyncio
import time
from typing import Final

__all__ = ["TimeSlice"]

_SLICE_S: Final = 0.002
"""Another call needs some ten turns of the event loop, and each may have to wait for a slice."""


class TimeSlice:
    """Lets other tasks run once work has taken longer than a slice; until then, a pause costs next to nothing."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SLICE_S

    async def pause(self) -> None:
        """Let other tasks run if the slice is used up; call it between the steps of the work."""
        if time.monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = time.monotonic() + _SLICE_S
