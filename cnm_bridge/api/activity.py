# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker wants now, and when it last wanted something."""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["CallsUnderWay"]

_LAST: Final = 2
"""Of how many endpoints the last call is remembered: of one, and of one that is another."""


class CallsUnderWay:
    """The calls that have begun and not ended, and how long Docker has been quiet."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, str | None]] = {}
        self._ended: dict[str | None, float] = {}
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def counted(self, call: str, endpoint_id: str | None) -> Iterator[None]:
        """Count a call for as long as the block runs.

        Args:
            call: It, in words.
            endpoint_id: What it is about; a network's calls, which have none, are about one thing together.
        """
        token = object()
        self._calls[token] = (call, endpoint_id)
        self._none.clear()
        try:
            yield
        finally:
            del self._calls[token]
            self._ended.pop(endpoint_id, None)
            self._ended[endpoint_id] = time.monotonic()
            if len(self._ended) > _LAST:
                del self._ended[next(iter(self._ended))]
            if not self._calls:
                self._none.set()

    def quiet_s(self, besides: str) -> float:
        """Tell for how many seconds Docker has wanted nothing, but for one endpoint; 0 while it does."""
        if any(endpoint_id != besides for _, endpoint_id in self._calls.values()):
            return 0.0
        ended = [ended for endpoint_id, ended in self._ended.items() if endpoint_id != besides]
        return time.monotonic() - max(ended, default=-math.inf)

    @property
    def all(self) -> tuple[str, ...]:
        """What is under way now."""
        return tuple(call for call, _ in self._calls.values())

    async def wait_none(self) -> None:
        """Wait until nothing is."""
        await self._none.wait()
