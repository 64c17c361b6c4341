# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which teardowns run at this moment, and news of each that has ended, with or without success."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from state import EndpointId

__all__ = ["RunningTeardowns"]


class RunningTeardowns:
    """The attempts to tear an endpoint down, one at a time for each endpoint."""

    def __init__(self) -> None:
        self._running: set[EndpointId] = set()
        self._ended = asyncio.Event()

    @property
    def running(self) -> frozenset[EndpointId]:
        """The endpoints for which an attempt runs."""
        return frozenset(self._running)

    @contextmanager
    def attempt(self, endpoint_id: EndpointId) -> Iterator[None]:
        """Run the body as an attempt."""
        self._running.add(endpoint_id)
        try:
            yield
        finally:
            self._running.remove(endpoint_id)
            self.announce()

    def announce(self) -> None:
        """Tell all who wait that something may have changed."""
        self._ended.set()
        self._ended = asyncio.Event()

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is looked at now and whenever something may have changed."""
        while not is_true():
            await self._ended.wait()
