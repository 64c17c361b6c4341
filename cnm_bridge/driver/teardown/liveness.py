# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds endpoints that no container can use any more. The attacher of each mode decides this for its endpoints."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from cni_bridge_state import AttachMode, EndpointRecord
from cnm_bridge.driver.attach.attacher import Attacher, Attachers

DEAD: Final = "its sandbox and its link are gone"
"""Why a dead endpoint is torn down, for the log."""

Records = Iterable[EndpointRecord]
Query = Callable[[Attacher, Records], Awaitable[tuple[EndpointRecord, ...]]]


class Liveness:
    """Asks the attachers about their endpoints.

    Args:
        attachers: The attacher of each mode.
    """

    def __init__(self, attachers: Attachers) -> None:
        self._attachers = attachers

    async def find_dead(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of which neither the sandbox nor the link exists.

        Raises:
            KernelError: The links cannot be listed.
        """
        return await self._ask(lambda attacher, own: attacher.find_dead(own), records)

    async def find_abandoned(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that belong to no container that runs or is being started.

        Raises:
            KernelError: Links or processes cannot be listed.
        """
        return await self._ask(lambda attacher, own: attacher.find_abandoned(own), records)

    async def find_without_link(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the joined endpoints whose sandbox exists and whose link does not.

        Raises:
            KernelError: A namespace cannot be entered or read.
        """
        return await self._ask(lambda attacher, own: attacher.find_without_link(own), records)

    async def _ask(self, query: Query, records: Records) -> tuple[EndpointRecord, ...]:
        by_mode: dict[AttachMode, list[EndpointRecord]] = {}
        for record in records:
            by_mode.setdefault(record.attachment.mode, []).append(record)
        answers = [await query(self._attachers[mode], own) for mode, own in by_mode.items()]
        return tuple(record for answer in answers for record in answer)
