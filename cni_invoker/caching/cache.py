# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a runtime remembers of its attachments, and where: the two protocols, and what forgets with the process.

Everything DEL and CHECK need was known at ADD, and may have changed since: the configuration file was edited, the
namespace's path forgotten, the capability arguments were only in a caller's environment (CNI SPEC §2 "Lifecycle &
Ordering"). So it is remembered as it was.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from cni_invoker.attachment import Attachment, AttachmentKey
from cni_invoker.errors import AttachmentExists
from spec import JsonObject

__all__ = ["AttachmentCache", "AttachmentReader", "CachedAttachment", "MemoryCache", "read_boot_id"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Return the kernel's boot ID: no namespace outlives it."""
    return _BOOT_ID.read_text("ascii").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAttachment:
    """An attachment that plugins were asked for, and are owed a DEL for.

    Attributes:
        network: Name of the network.
        attachment: What was given to ADD.
        configuration: The network configuration list that was used, whole; None if it has not been kept, or cannot be
            read any more.
        result: The last result that a plugin of the list told; None if none has.
        added_plugins: How many plugins of the list have told one, from the first; None if it has not been kept, for
            all.
        boot_id: The kernel's boot ID at ADD; empty if it has not been kept.
        deleted: Indexes of the plugins of `configuration` whose DEL has completed; None as long as no DEL has begun.
    """

    network: str
    attachment: Attachment
    configuration: JsonObject | None = field(hash=False)
    result: JsonObject | None = field(hash=False)
    boot_id: str
    added_plugins: int | None = None
    deleted: frozenset[int] | None = None


class AttachmentReader(Protocol):
    """Knows attachments, one for each network, container ID and interface name.

    It is enough for who only wants to know what there is: the plugins' GC, for one, needs to be told what is valid.

    Raises:
        CacheError: From every method: the cache cannot be read or written.
    """

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:
        """Have the body run while no other process works on the container, or has GC on the network.

        Tasks of one process are not kept apart by every cache; that is the runtime's.

        Args:
            network: The network's name.
            container_id: The container; None for GC, while which no other process works on the network.
            wait_s: How long to wait for the others, in seconds.

        Raises:
            NetworkBusy: They did not end in time; the body has not run.
        """

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return what is kept of an attachment to the network called `network`, None if nothing is.

        Raises:
            CacheDamaged: Something was kept, but cannot be understood any more.
            CacheUnknown: Something was kept, of a kind that only others know.
        """

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all attachments, or those to one network; what is damaged is left out.

        Args:
            network: The network's name, None for all.
            whole: Nothing must be left out.

        Raises:
            CacheDamaged, CacheUnknown: Something that may be asked for would have been left out.
        """


class AttachmentCache(AttachmentReader, Protocol):
    """Keeps attachments, and forgets them when it is told to.

    When a method that changes something returns, the change will survive whatever the cache is made to survive; when it
    raises, or is cancelled, the change has happened whole or not at all.

    Raises:
        CacheError: From every method: the cache cannot be read or written.
    """

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Keep `cached`, in place of an earlier state of the same attachment.

        Args:
            cached: The attachment.
            new: There must be no earlier state, unless it is damaged.

        Raises:
            AttachmentExists: It is not new; nothing has changed.
            CacheUnknown: It would take the place of what only others know; nothing has changed.
        """

    async def remove(self, network: str, key: AttachmentKey) -> None:
        """Forget an attachment, damaged or not; if there is none, nothing happens."""


class MemoryCache:
    """Keeps attachments for as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, AttachmentKey], CachedAttachment] = {}

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # the protocol's
        """Run the body at once: no other process has this cache."""
        return nullcontext()

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
        """Keep `cached`."""
        key = cached.attachment.key
        if new and (cached.network, key) in self._kept:
            raise AttachmentExists(cached.network, key.container_id, key.ifname)
        self._kept[cached.network, key] = cached

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return what is kept of an attachment, None if nothing is."""
        return self._kept.get((network, key))

    async def remove(self, network: str, key: AttachmentKey) -> None:
        """Forget an attachment."""
        self._kept.pop((network, key), None)

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:  # noqa: ARG002  # the protocol's
        """Return all attachments, or those to one network, in the order in which they came."""
        return tuple(cached for cached in self._kept.values() if network in {None, cached.network})
