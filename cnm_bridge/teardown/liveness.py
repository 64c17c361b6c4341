# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoints can never be used again; each attacher knows it of its own."""

from collections.abc import Awaitable, Callable, Iterable

from cnm_bridge.attach.protocol import Attacher, Attachers
from state import AttachMode, EndpointRecord

__all__ = ["Liveness"]

Records = Iterable[EndpointRecord]
Question = Callable[[Attacher, Records], Awaitable[tuple[EndpointRecord, ...]]]


class Liveness:
    """Asks the attachers about their endpoints.

    Args:
        attachers: The attacher of each mode.
    """

    def __init__(self, attachers: Attachers) -> None:
        self._attachers = attachers

    async def find_dead(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the endpoints of which the kernel has nothing any more.

        Raises:
            KernelError: The links cannot be listed.
        """
        return await self._ask(lambda attacher, own: attacher.find_dead(own), records)

    async def find_abandoned(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the endpoints that belong to no container that runs or is being started.

        Raises:
            KernelError: Links or processes cannot be looked at.
        """
        return await self._ask(lambda attacher, own: attacher.find_abandoned(own), records)

    async def find_without_link(self, records: Records) -> tuple[EndpointRecord, ...]:
        """Return the joined endpoints whose sandbox exists and whose link does not. The container is left alone.

        Raises:
            KernelError: A namespace cannot be looked into.
        """
        return await self._ask(lambda attacher, own: attacher.find_without_link(own), records)

    async def _ask(self, question: Question, records: Records) -> tuple[EndpointRecord, ...]:
        by_mode: dict[AttachMode, list[EndpointRecord]] = {}
        for record in records:
            by_mode.setdefault(record.attach_mode, []).append(record)
        answers = [await question(self._attachers[mode], own) for mode, own in by_mode.items()]
        return tuple(record for answer in answers for record in answer)
