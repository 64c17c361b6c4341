# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The teardowns that are running, and a notification when one ends, with or without success."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cni_bridge_state import EndpointId

__all__ = ["RunningTeardowns"]


class RunningTeardowns:
    """The running attempts to tear endpoints down; at most one for each endpoint."""

    def __init__(self) -> None:
        self._running: set[EndpointId] = set()
        self._ended = asyncio.Event()

    @property
    def running(self) -> frozenset[EndpointId]:
        """The endpoints whose teardown is running."""
        return frozenset(self._running)

    @contextmanager
    def attempt(self, endpoint_id: EndpointId) -> Iterator[None]:
        """Track an attempt while the block runs."""
        self._running.add(endpoint_id)
        try:
            yield
        finally:
            self._running.remove(endpoint_id)
            self.announce()

    def announce(self) -> None:
        """Have all waiters check their condition again."""
        self._ended.set()
        self._ended = asyncio.Event()

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until `is_true()`, which is called now and after each announcement."""
        while not is_true():
            await self._ended.wait()
