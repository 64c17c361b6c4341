# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Presents the daemon's endpoints as CNI attachments: a read-only attachment cache over the store.

It has no way to add or remove attachments: only Docker's calls create and delete endpoints, and they bring the link
back before DEL.
"""

from contextlib import AbstractAsyncContextManager, nullcontext

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointRecord
from cni_bridge_state.store import Store
from cni_invoker import AttachmentKey, CachedAttachment
from cni_invoker.errors import CacheDamaged
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.system.scheduling.time_slice import TimeSlice

__all__ = ["EndpointCache"]


class EndpointCache:
    """An `AttachmentReader` over a `Store`.

    It contains endpoints of every phase: from PENDING on an ADD may have run, and in DELETING a DEL is pending. It does
    not check whether Docker still has an endpoint. If the database was damaged, the store is not `whole` until the
    operator removes the copies of the damaged files.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # the protocol's
        """Run the body at once: no other process can open the store."""
        return nullcontext()

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return this attachment to the CNI network called `network`, None if there is no such endpoint."""
        record = self._store.find_attachment(AttachmentId(key.container_id))
        cached = None if record is None else _cached(record)
        return cached if cached and (cached.network, cached.attachment.key) == (network, key) else None

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all endpoints, or those on one CNI network, by ID."""
        for copy in self._store.damaged_copies() if whole else ():
            raise CacheDamaged(
                copy, "it may contain endpoints whose records were lost; remove it when no container uses them"
            )
        found = []
        time_slice = TimeSlice()
        for record in self._store.endpoints():
            if network in {None, record.attachment.network}:
                found.append(_cached(record))
                await time_slice.pause()
        return tuple(found)


def _cached(record: EndpointRecord) -> CachedAttachment:
    configuration = _with_one_version(record.attachment.configuration, record.attachment.cni_version)
    return CachedAttachment(
        network=record.attachment.network,
        attachment=Endpoint(record).attachment,
        configuration=configuration,
        result=record.result,
        boot_id=record.boot_id,
        added_plugins=record.added_plugins,
    )


def _with_one_version(configuration: JsonObject, version: str) -> JsonObject:
    """Return a list that offers only the CNI version that its plugins received at ADD."""
    return {**{key: value for key, value in configuration.items() if key != "cniVersions"}, "cniVersion": version}
