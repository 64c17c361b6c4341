# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's endpoints as CNI attachments: a read-only attachment cache over the store.

Nothing is written here: only the daemon's own calls create and delete endpoints, and they return the link before DEL.
"""

from contextlib import AbstractAsyncContextManager, nullcontext

from cni_invoker import AttachmentKey, CacheDamaged, CachedAttachment
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.scheduling.time_slice import TimeSlice
from spec import JsonObject
from state import AttachmentId, EndpointRecord, Store

__all__ = ["EndpointCache"]


class EndpointCache:
    """An `AttachmentReader` over a `Store`.

    It contains endpoints of every phase: since PENDING an ADD may have run, and in DELETING a DEL is pending. It does
    not know whether an endpoint is still wanted. A store from which damage was set aside is not `whole` until the
    operator has removed the copies.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, network: str, container_id: str | None, *, wait_s: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002  # the protocol's
        """Run the body at once: no other process has the store."""
        return nullcontext()

    async def find(self, network: str, key: AttachmentKey) -> CachedAttachment | None:
        """Return the endpoint that is this attachment to the CNI network called `network`, None if there is none."""
        record = self._store.find_attachment(AttachmentId(key.container_id))
        cached = None if record is None else _cached(record)
        return cached if cached and (cached.network, cached.attachment.key) == (network, key) else None

    async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
        """Return all endpoints, or those on one CNI network, by ID."""
        for copy in self._store.damaged_copies() if whole else ():
            raise CacheDamaged(copy, "endpoints may be in it that were lost; remove it when none of them runs")
        found = []
        time_slice = TimeSlice()
        for record in self._store.endpoints():
            if network in {None, record.cni_network}:
                found.append(_cached(record))
                await time_slice.pause()
        return tuple(found)


def _cached(record: EndpointRecord) -> CachedAttachment:
    configuration = _as_spoken(record.attachment.configuration, record.attachment.cni_version)
    return CachedAttachment(
        network=record.cni_network,
        attachment=Endpoint(record).attachment,
        configuration=configuration,
        result=record.result,
        boot_id=record.boot_id,
        added_plugins=record.added_plugins,
    )


def _as_spoken(configuration: JsonObject, version: str) -> JsonObject:
    """Return a list that offers nothing but the version its plugins were spoken to in."""
    return {**{key: value for key, value in configuration.items() if key != "cniVersions"}, "cniVersion": version}
