# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's endpoints, seen as CNI attachments: LevelDB as an attachment cache, to be read."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from cni_invoker import AttachmentKey, CachedAttachment, CacheError
from cnm_bridge.lifecycle.attachment import cni_attachment
from spec import find_str
from state import EndpointId, EndpointRecord, Store

__all__ = ["EndpointCache"]

_PLACE: Final = "the daemon's store"
_REASON: Final = "it is changed by the daemon's own calls alone"


class EndpointCache:
    """An `AttachmentCache` over a `Store`.

    Endpoints of every phase are in it: an ADD may have run since PENDING, and in DELETING a DEL is owed. Whether one is
    still wanted is not told here.

    It refuses to change anything: an endpoint is undone by `TearDown`, which brings the link back before DEL.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # the protocol's
        """Run the body at once: no other process has the store."""
        return nullcontext()

    async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:  # noqa: ARG002  # the protocol's
        """Raise `CacheError`."""
        raise CacheError(_PLACE, f"cannot keep {cached.attachment.container_id}: {_REASON}")

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return the endpoint that is this attachment to the CNI network called `network`, None if there is none."""
        record = self._store.find_endpoint(EndpointId(key.container_id))
        cached = None if record is None else _cached(record)
        return cached if cached and (cached.network, cached.attachment.key) == (network, key) else None

    async def remove(self, network: str, key: AttachmentKey) -> None:  # noqa: ARG002  # the protocol's
        """Raise `CacheError`."""
        raise CacheError(_PLACE, f"cannot forget {key.container_id}: {_REASON}")

    async def list(self, network: str | None = None) -> tuple[CachedAttachment, ...]:
        """Return all endpoints, or those on one CNI network, by ID."""
        return tuple(cached for cached in map(_cached, self._store.endpoints()) if network in {None, cached.network})


def _cached(record: EndpointRecord) -> CachedAttachment:
    return CachedAttachment(
        network=find_str(record.attachment.configuration, "name") or "",
        attachment=cni_attachment(record),
        configuration=record.attachment.configuration,
        result=record.result,
        boot_id=record.boot_id,
        answered=record.answered,
    )
