# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The requests that change something: a round of comparison, teardowns that run again, addresses that are released."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.document import describe_pending
from cnm_bridge.server.admin.errors import AdminError, ErrorKind
from cnm_bridge.server.admin.ipam import IpamDocuments

_PATIENCE_S: Final = 45.0
"""Time limit of a request; the work continues in the background. Clients wait for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """Executes the requests."""

    teardowns: TeardownQueue
    reconciler: Reconciler
    ipam: IpamDocuments

    async def compare(self, _: Mapping[str, str]) -> JsonObject:
        """Run a round of comparison now, which removes leftovers; return what is left (`spec/admin/leftovers.json`)."""
        is_complete = True
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.reconciler.wait_round()
        except TimeoutError:
            is_complete = False
        return self._left(is_complete=is_complete)

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
        return self._left()

    async def release(self, parameters: Mapping[str, str]) -> JsonObject:
        """Release the address `id`; return what is left.

        Raises:
            AdminError: There is none.
            Refused, KernelError: It is in use, or that cannot be determined.
        """
        if not await self.ipam.release(parameters["id"]):
            raise AdminError(
                ErrorKind.NOT_FOUND,
                f"there is no unclaimed address {parameters['id']}; `cni-bridge cleanup` shows those that there are",
            )
        return self._left()

    async def show(self, _: Mapping[str, str]) -> JsonObject:
        """Return what is left, as it was found last."""
        return self._left()

    def _left(self, *, is_complete: bool = True) -> JsonObject:
        return {
            "isComplete": is_complete,
            "isEngineUp": self.reconciler.engine_is_up,
            "pendingTeardowns": describe_pending(self.teardowns),
            "leftovers": self.ipam.uncertain(),
        }
