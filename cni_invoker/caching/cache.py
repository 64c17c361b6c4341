# SPDX-License-Identifier: Apache-2.0
"""The cache of attachments: the record, the interface, and an implementation in memory.

DEL and CHECK need what was known at ADD, and that may change or be forgotten (CNI SPEC §2 "Lifecycle & Ordering").
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from cni_invoker.documents.attachment import Attachment, AttachmentKey
from cni_invoker.documents.jsontypes import JsonObject
from cni_invoker.errors import AttachmentExists, CacheDamaged, CacheUnknown
from cni_invoker.locks import TaskLocks
from cni_invoker.messages import log_event


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAttachment:
    """An attachment whose ADD has begun and whose DEL has not completed.

    Attributes:
        network: Name of the network.
        attachment: The attachment that was passed to ADD.
        configuration: The complete network configuration list that was used; None if it was not stored or is
            unreadable.
        result: The last result that a plugin of the list printed; None if there is none.
        added_plugins: How many plugins of the list have printed a result, from the first; None if it was not stored,
            which means all.
        boot_id: The kernel's boot ID at ADD; empty if it was not stored.
        deleted: Indexes of the plugins of `configuration` whose DEL has completed; None as long as no DEL has begun.
    """

    network: str
    attachment: Attachment
    configuration: JsonObject | None = field(hash=False)
    result: JsonObject | None = field(hash=False)
    boot_id: str
    added_plugins: int | None = None
    deleted: frozenset[int] | None = None


class AttachmentCache(Protocol):
    """Attachments, one per network, container ID and interface name.

    A change is atomic. When the method returns, the change is as durable as the cache is; when it raises or is
    cancelled, the change has happened completely or not at all.

    Raises:
        CacheError: From every method: the cache cannot be read or written.
    """

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:
        """Run the body while no other task or process uses the container or runs GC on the network.

        Args:
            network: The network's name.
            container_id: The container; None for GC, which excludes all others from the network.
            wait_s: How long to wait for others, in seconds.

        Raises:
            NetworkBusy: They did not end in time; the body has not run.
        """

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return an attachment to the network called `network`, None if it is not cached.

        Raises:
            CacheDamaged: The stored record is unreadable.
            CacheUnknown: The stored record has an unknown format.
        """

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all attachments, or those to one network; damaged records are skipped.

        Args:
            network: The network's name, None for all.
            whole: Raise instead of skipping a record.

        Raises:
            CacheDamaged, CacheUnknown: With `whole`: a record that may belong to the network is unreadable.
        """

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Store `cached`, replacing an earlier state of the same attachment.

        Args:
            cached: The attachment.
            new: Refuse to replace an earlier state, unless it is damaged.

        Raises:
            AttachmentExists: It is not new; nothing has changed.
            CacheUnknown: It would replace a record of an unknown format; nothing has changed.
        """

    async def remove(self, network: str, key: AttachmentKey) -> None:
        """Remove an attachment, damaged or not; if it is not cached, nothing happens."""


class MemoryCache:
    """Keeps attachments in memory."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, AttachmentKey], CachedAttachment] = {}
        self._locks = TaskLocks()

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:
        """Run the body while no other task uses the container or runs GC on the network."""
        return self._locks.hold(network, container_id, wait_s=wait_s)

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Store `cached`."""
        key = cached.attachment.key
        if new and (cached.network, key) in self._kept:
            raise AttachmentExists(cached.network, key.container_id, key.ifname)
        self._kept[cached.network, key] = cached

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return an attachment, None if it is not cached."""
        return self._kept.get((network, key))

    async def remove(self, network: str, key: AttachmentKey) -> None:
        """Remove an attachment."""
        self._kept.pop((network, key), None)

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:  # noqa: ARG002  # the protocol's
        """Return all attachments, or those to one network, oldest first."""
        return tuple(cached for cached in self._kept.values() if network in {None, cached.network})


async def find_readable(
    cache: AttachmentCache, network: str, key: AttachmentKey, *, force: bool = False
) -> CachedAttachment | None:
    """Return a cached attachment; a damaged record counts as missing, so that it cannot prevent ADD or DEL.

    A record of an unknown format belongs to another program and is an error, unless `force` is set.
    """
    try:
        return await cache.find(network, key)
    except CacheUnknown as exc:
        if not force:
            raise
        log_event(__name__, "cache.damaged", place=str(exc.place), reason=exc.reason)
        return None
    except CacheDamaged as exc:
        log_event(__name__, "cache.damaged", place=str(exc.place), reason=exc.reason)
        return None
