# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The requests that change something: a round of comparison, teardowns that run again, orphans that are removed."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId
from cnm_bridge.driver.recovery.artifacts import PluginArtifact
from cnm_bridge.driver.recovery.orphan_audit import OrphanAudit
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.recovery.release_orphan import ReleaseOrphan
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.document import describe_pending
from cnm_bridge.server.admin.errors import AdminError, ErrorKind
from cnm_bridge.server.admin.ipam import IpamDocuments

_PATIENCE_S: Final = 45.0
"""Time limit of a request; the work continues in the background. Clients wait for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Executes the requests.

    Attributes:
        release_orphan: Removes an orphan.
    """

    teardowns: TeardownQueue
    reconciler: Reconciler
    audit: OrphanAudit
    release_orphan: ReleaseOrphan
    ipam: IpamDocuments

    async def compare(self, _: Mapping[str, str]) -> JsonObject:
        """Run a round of comparison now, which removes leftovers; return what is left (`spec/admin/leftovers.json`)."""
        is_complete = True
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.reconciler.wait_round()
        except TimeoutError:
            is_complete = False
        return await self._left(is_complete=is_complete)

    async def retry(self, parameters: Mapping[str, str]) -> JsonObject:
        """Run failed teardowns now, all or that of the endpoint `id`; return what is left.

        Raises:
            AdminError: The endpoint has no failed teardown.
        """
        failed = [endpoint_id for endpoint_id, one in self.teardowns.all.items() if one.attempts]
        if "id" in parameters:
            wanted = EndpointId(parameters["id"])
            if wanted not in failed:
                raise AdminError(ErrorKind.NOT_FOUND, f"endpoint {wanted} has no failed teardown")
            failed = [wanted]
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.teardowns.retry(failed)
        return await self._left()

    async def release(self, parameters: Mapping[str, str]) -> JsonObject:
        """Remove the orphan `id`, or release the address; return what is left.

        Raises:
            AdminError: There is neither.
            Refused, KernelError: It is in use, or that cannot be determined.
        """
        found = [orphan for orphan in self.audit.orphans if orphan.id == parameters["id"]]
        if not found and await self.ipam.release(parameters["id"]):
            return await self._left()
        if not found:
            raise AdminError(
                ErrorKind.NOT_FOUND,
                f"there is no leftover {parameters['id']}; `cni-bridge gc` shows those that there are",
            )
        await self.release_orphan(found[0])
        return await self._left()

    async def show(self, _: Mapping[str, str]) -> JsonObject:
        """Return what is left, as it was found last."""
        return await self._left()

    async def _left(self, *, is_complete: bool = True) -> JsonObject:
        orphans = self.audit.orphans
        modified = await asyncio.to_thread(lambda: [_modified_at(one) for one in orphans])
        return {
            "isComplete": is_complete,
            "isEngineUp": self.reconciler.engine_is_up,
            "pendingTeardowns": describe_pending(self.teardowns),
            "leftovers": [
                {
                    "id": one.id,
                    "network": one.network,
                    "containerId": one.container_id,
                    "what": one.what,
                    "modifiedAt": modified_at,
                }
                for one, modified_at in zip(orphans, modified, strict=True)
            ]
            + [*self.ipam.uncertain()],
        }


def _modified_at(orphan: PluginArtifact) -> int | None:
    """Return when the file of a reservation was written; None for everything else."""
    if not orphan.what.startswith("/"):
        return None
    try:
        return int(Path(orphan.what).stat().st_mtime)
    except OSError:  # it was removed meanwhile
        return None
