# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoints a container runs on, whatever the records and the engine say.

A record may be older than what it tells of: its last write was lost, or an older export was imported. An engine may
answer with less than it has, or not be the only one that calls us. The kernel knows.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.model.naming import alternative_name, staging_directory
from state import EndpointId, EndpointRecord

__all__ = ["InUseCheck"]

log = structlog.get_logger()

_IN_USE: Final = (
    "a container starts or runs on it, so it stays until that has ended; has dockerd lost it in a crash, or does "
    "another engine use this driver too?"
)


class InUseCheck:
    """Tells which endpoints are in use.

    Args:
        kernel: The links and sandboxes.
        run_dir: Below it are the staging namespaces.
    """

    def __init__(self, kernel: Kernel, run_dir: Path) -> None:
        self._kernel = kernel
        self._staging = staging_directory(run_dir)
        self._logged: set[EndpointId] = set()

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget what was logged of an endpoint that is gone."""
        self._logged.discard(endpoint_id)

    async def find_in_use(self, records: Iterable[EndpointRecord]) -> frozenset[EndpointId]:
        """Return those of some endpoints whose link is in a namespace in which a process lives.

        Raises:
            KernelError: It cannot be known.
        """
        wanted = {alternative_name(record.attachment_id): record.id for record in records}
        if not wanted:
            return frozenset()
        found = await self._kernel.altnames_in_use(self._staging)
        return frozenset(endpoint_id for name, endpoint_id in wanted.items() if name in found)

    async def without_in_use(self, records: Iterable[EndpointRecord]) -> tuple[EndpointRecord, ...]:
        """Return those of some endpoints that may be torn down: what cannot be known counts as in use.

        An endpoint that is in use is logged once.
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
