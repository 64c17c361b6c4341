# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Limits concurrent teardowns, so that plugins that hang do not hold up the others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Final

from cni_bridge_state import EndpointId
from cnm_bridge.system.scheduling.priority_slots import PrioritySlots

__all__ = ["TeardownSlots"]


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
        self._teardowns: PrioritySlots[EndpointId] = PrioritySlots(teardowns, for_preferred=teardowns)
        self._plugins: PrioritySlots[EndpointId] = PrioritySlots(plugins, for_preferred=plugins)
        self._preferred: set[EndpointId] = set()
        self._hung: set[EndpointId] = set()
        self._for_hung = asyncio.Semaphore(max(1, plugins // 2))

    def prefer(self, endpoints: Iterable[EndpointId]) -> None:
        """Let these teardowns go first, except those with a plugin that hung."""
        preferred = set(endpoints) - self._hung
        self._preferred |= preferred
        self._teardowns.prefer(preferred)
        self._plugins.prefer(preferred)

    @asynccontextmanager
    async def teardown(self, endpoint_id: EndpointId, network: str) -> AsyncIterator[None]:
        """Run the body, a teardown on a CNI network, in a slot of its own."""
        try:
            async with (
                self._for_hung if endpoint_id in self._hung else nullcontext(),
                self._teardowns.take(endpoint_id, network, preferred=endpoint_id in self._preferred),
            ):
                yield
        finally:
            self._preferred.discard(endpoint_id)

    def plugin(self, endpoint_id: EndpointId, network: str) -> AbstractAsyncContextManager[None]:
        """Return the slot of one execution of a plugin, for a teardown on a CNI network."""
        return self._plugins.take(endpoint_id, network, preferred=endpoint_id in self._preferred)

    def has_hung(self, endpoint_id: EndpointId) -> bool:
        """Return whether a plugin of a teardown was killed because it hung, and none has answered since."""
        return endpoint_id in self._hung

    def note_hung(self, endpoint_id: EndpointId) -> None:
        """Record that a plugin of a teardown was killed because it hung."""
        self._hung.add(endpoint_id)

    def forget_hung(self, endpoint_id: EndpointId) -> None:
        """Record that a plugin of a teardown has answered, or that the teardown has completed."""
        self._hung.discard(endpoint_id)
