# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tracks which plugins of an endpoint have completed DEL: in the record, and in memory in case the disk is full."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, StateUnusable
from cni_bridge_state.store import Store
from cnm_bridge.driver.teardown.unrecorded_links import UnrecordedLinks

__all__ = ["TeardownProgress"]

log = structlog.get_logger()


class TeardownProgress:
    """The progress of one endpoint's teardown, over all its attempts; a `DeleteProgress` (`driver/attach/attacher.py`).

    Attributes:
        slot: Takes a slot for one execution of a plugin.
        kept: The indexes of the plugins whose DEL does not run in this attempt.

    Args:
        store: The records.
        find_owner: Finds another endpoint that needs the rules that a plugin would remove by address.
        unrecorded: Finds running containers whose endpoint has no record.
        slot: As above.
    """

    def __init__(
        self,
        store: Store,
        find_owner: Callable[[EndpointRecord, str], EndpointId | None],
        unrecorded: UnrecordedLinks,
        slot: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._store = store
        self._find_owner = find_owner
        self._unrecorded = unrecorded
        self.slot = slot
        self.kept: frozenset[int] = frozenset()
        self._deleted: frozenset[int] = frozenset()

    @property
    def deleted(self) -> frozenset[int]:
        """The plugins whose DEL must not run: it has completed, or what the plugin has made is kept."""
        return self._deleted | self.kept

    @deleted.setter
    def deleted(self, deleted: frozenset[int]) -> None:
        self._deleted = deleted - self.kept

    def with_deleted(self, record: EndpointRecord) -> EndpointRecord:
        """Return a copy of the record that lists the plugins whose DEL has completed."""
        return replace(record, deleted=tuple(sorted(self._deleted)))

    async def save(self, record: EndpointRecord) -> None:
        """Store a record with the progress. A failure is logged: a full disk must not keep the address and the link."""
        try:
            await self._store.put_endpoint(self.with_deleted(record))
        except StateUnusable as exc:
            log.warning("endpoint.not_stored", endpoint_id=record.id, error=str(exc))

    async def is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs the rules that a plugin's DEL would remove by address.

        Raises:
            AddressClaimed: An endpoint that is being created may need them.
            AddressInUse: A running container may need them, whose endpoint has no record.
            KernelError: It cannot be read which addresses running containers have.
        """
        await self._unrecorded.refuse_if_used(plugin, record.addresses)  # before the records, which may be added to
        owner = self._find_owner(record, plugin)
        if owner is not None:
            log.info("endpoint.address_has_new_owner", endpoint_id=record.id, owner=owner, plugin=plugin)
        return owner is not None
