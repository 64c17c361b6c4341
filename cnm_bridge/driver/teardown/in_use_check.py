# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the endpoints in use, whose link is in a sandbox in which a process runs; only the kernel is asked.

A record may be out of date, because its last write was lost or an older export was imported. The engine may list fewer
endpoints than it has, or may not be the only engine that uses this driver.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord, Phase
from cni_invoker import CniError
from cni_invoker.errors import ErrorCode
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import alternative_name
from cnm_bridge.driver.attach.liveness import own_sandboxes
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_IN_USE: Final = (
    "a container starts or runs on it, so it stays until that container ends; did dockerd lose it in a crash, or does "
    "another engine use this driver too?"
)


class AttachmentInUse(CniError):
    """A teardown has to wait: a running container has the same attachment, and its endpoint has no record."""

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, attachment_id: AttachmentId) -> None:
        super().__init__(
            f"the DEL waits, because it would take the network of a running container that has the same DHCP client "
            f"identifier, and so the same attachment {attachment_id}; the DEL runs when that container has ended"
        )


@dataclass(slots=True)
class InUseCheck:
    """Finds endpoints in use, and logs each of them once."""

    kernel: Kernel
    _logged: set[EndpointId] = field(default_factory=set, init=False)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget an endpoint whose record has been removed."""
        self._logged.discard(endpoint_id)

    async def find_in_use(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Return the endpoints whose link is in their sandbox, in which a process runs; see `own_sandboxes`.

        Raises:
            KernelError: The sandboxes cannot be read.
        """
        wanted = {record.id: (alternative_name(record.attachment.id), own_sandboxes(record)) for record in records}
        if not wanted:
            return frozenset()
        seen = await self.kernel.look_into_sandboxes(path for _, own in wanted.values() for path in own)
        return frozenset(endpoint_id for endpoint_id, (name, own) in wanted.items() if seen.has_in_use(name, own))

    async def find_in_place(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Return the endpoints whose link is in the sandbox that Docker has told, whether processes run there or not.

        Raises:
            KernelError: The sandboxes cannot be read.
        """
        wanted = {record.id: record for record in records if record.sandbox_key is not None}
        if not wanted:
            return frozenset()
        seen = await self.kernel.look_into_sandboxes(filter(None, (one.sandbox_key for one in wanted.values())))
        return frozenset(
            record.id
            for record in wanted.values()
            if seen.has(alternative_name(record.attachment.id), str(record.sandbox))
        )

    async def refuse_anothers(self, record: EndpointRecord) -> None:
        """Return if what an endpoint that is being deleted has attached is its own, as far as it still exists.

        Endpoints with the same DHCP client identifier have the same attachment, one after the other. If an older state
        was restored, the next one may have no record. Its sandbox is another one, and so is its first process.

        Raises:
            AttachmentInUse: It is that of another endpoint, on which a container runs.
            KernelError: The sandboxes cannot be read.
        """
        is_own = record.attachment.id == AttachmentId(record.id)
        if record.phase is not Phase.DELETING or is_own or record.sandbox_key is None:
            return
        process = record.first_process
        if process is not None and self.kernel.find_start(process.pid) == process.started:
            return
        if await self.kernel.gone_sandboxes([record.sandbox_key]) and await self.find_in_use([record]):
            raise AttachmentInUse(record.attachment.id)

    async def without_in_use(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that are not in use. On a kernel error, all count as in use.

        Each endpoint in use is logged once.
        """
        wanted = tuple(records)
        try:
            in_use = await self.find_in_use(wanted)
        except KernelError as exc:
            log.warning("endpoint.in_use_unknown", endpoints=[record.id for record in wanted], error=str(exc))
            return ()
        for endpoint_id in sorted(in_use - self._logged):
            log.warning("endpoint.in_use", endpoint_id=endpoint_id, consequence=_IN_USE)
            await asyncio.sleep(0)
        self._logged |= in_use
        return tuple(record for record in wanted if record.id not in in_use)
