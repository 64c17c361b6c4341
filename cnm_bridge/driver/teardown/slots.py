# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Limits concurrent teardowns, so that plugins that hang do not hold up the others.

Work on which a Docker call waits goes first. Each network has a share, by the rules of the library's executions
(`cni_invoker/execution/limits.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

from cni_bridge_state import EndpointId
from cni_invoker.advanced import NetworkSlots
from cnm_bridge.driver.teardown.pending import Pending, Urgency

_TEARDOWNS: Final = 8
"""Minimum number of concurrent teardowns. With 16 the event loop is blocked twice as long, and they gain little."""


class TeardownSlots:
    """Slots for teardowns, and fewer for their plugins.

    The same number of slots again is reserved for teardowns that a call waits for. Each network has a share, so that
    plugins that hang on one do not hold up the others. A plugin that was killed because it hung will probably hang
    again, so all teardowns with such a plugin share half of the slots.

    Args:
        plugins: Number of plugin slots, and of additional ones for teardowns that a call waits for.
    """

    def __init__(self, plugins: int) -> None:
        teardowns = max(_TEARDOWNS, 2 * plugins)
        self._teardowns: NetworkSlots[EndpointId] = NetworkSlots(teardowns, for_preferred=teardowns)
        self._plugins: NetworkSlots[EndpointId] = NetworkSlots(plugins, for_preferred=plugins)
        self._for_hung = asyncio.Semaphore(max(1, plugins // 2))

    def prefer(self, teardowns: Iterable[Pending]) -> None:
        """Let the next or running attempt of these go first, except those with a plugin that hung."""
        preferred = [pending for pending in teardowns if not pending.has_hung]
        for pending in preferred:
            pending.expedite(Urgency.FIRST)
        endpoints = [pending.key for pending in preferred]
        self._teardowns.prefer(endpoints)
        self._plugins.prefer(endpoints)

    @asynccontextmanager
    async def teardown(self, pending: Pending, network: str) -> AsyncIterator[None]:
        """Run the body, a teardown on a CNI network, in a slot of its own."""
        try:
            async with (
                self._for_hung if pending.has_hung else nullcontext(),
                self._teardowns.take(pending.key, network, preferred=pending.urgency is Urgency.FIRST),
            ):
                yield
        finally:
            pending.urgency = Urgency.NORMAL

    def plugin(self, pending: Pending, network: str) -> AbstractAsyncContextManager[None]:
        """Return the slot of one execution of a plugin, for a teardown on a CNI network."""
        return self._plugins.take(pending.key, network, preferred=pending.urgency is Urgency.FIRST)
