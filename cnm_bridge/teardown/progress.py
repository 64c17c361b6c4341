# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How far the DEL of an endpoint's plugins has come: in the record, and on a full disk at least in memory."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import structlog

from state import EndpointId, EndpointRecord, StateUnusable, Store

__all__ = ["Progress"]

log = structlog.get_logger()


class Progress:
    """The progress of one endpoint's teardown, over all its attempts; a `cnm_bridge.attach.DeleteProgress`.

    Args:
        store: The records.
        find_owner: Finds the endpoint that needs what a plugin would remove by the address alone.
        find_slot: Returns the function that takes a plugin slot, None to use the runtime's slots.
    """

    def __init__(
        self,
        store: Store,
        find_owner: Callable[[EndpointRecord, str], EndpointId | None],
        find_slot: Callable[[], Callable[[], AbstractAsyncContextManager[None]] | None],
    ) -> None:
        self._store = store
        self._find_owner = find_owner
        self._find_slot = find_slot
        self.deleted: frozenset[int] = frozenset()

    @property
    def slot(self) -> Callable[[], AbstractAsyncContextManager[None]] | None:
        """What limits how many plugins run at once in this attempt, None if nothing does."""
        return self._find_slot()

    def with_deleted(self, record: EndpointRecord) -> EndpointRecord:
        """Return a record that has the progress."""
        return replace(record, deleted=tuple(sorted(self.deleted)))

    async def save(self, record: EndpointRecord) -> None:
        """Store a record with the progress if that is possible: a full disk must not keep the address and the link."""
        try:
            await self._store.put_endpoint(self.with_deleted(record))
        except StateUnusable as exc:
            log.warning("endpoint.not_stored", endpoint_id=record.id, error=str(exc))

    async def is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs what a plugin's DEL would remove by the addresses.

        Raises:
            AddressClaimed: That is not certain yet.
        """
        owner = self._find_owner(record, plugin)
        if owner is not None:
            log.info("endpoint.address_has_new_owner", endpoint_id=record.id, owner=owner, plugin=plugin)
        return owner is not None
