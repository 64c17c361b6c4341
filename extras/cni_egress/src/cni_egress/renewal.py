# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks for names again before the addresses that they have opened are closed.

A program may resolve a name once and connect for weeks. So its names are renewed for as long as its container lives and
its policy has them.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from typing import Final

from cni_egress.answers import has_network, keep
from cni_egress.cache import Cache
from cni_egress.in_use import NamesInUse
from cni_egress.message import Question, to_text
from cni_egress.opening import OpeningThread
from cni_egress.records import BadRecord, IpAddress, Record, RecordGone, Records
from cni_egress.upstream import NoResponse

__all__ = ["Renewal"]

log = logging.getLogger(__name__)


_INTERVAL_S: Final = 5.0
_RETRY_S: Final = 30.0
_TOGETHER: Final = 16
"""How many names are asked for at the same time: the queries of containers come first."""


class Renewal:
    """The renewal of names in use.

    Args:
        records: The records of containers.
        cache: Resolves questions.
        opening: Opens the addresses.
        names: The names in use.
        grace_s: How long addresses stay open after the TTL of their answer; half of it later they are renewed.
        now: Returns the time in seconds.
    """

    def __init__(
        self,
        records: Records,
        cache: Cache,
        opening: OpeningThread,
        names: NamesInUse,
        *,
        grace_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._cache = cache
        self._opening = opening
        self._names = names
        self._grace_s = grace_s
        self._now = now
        self._lost = asyncio.Event()

    async def open(
        self, record: Record, question: Question, addresses: tuple[IpAddress, ...], ttl_s: float
    ) -> frozenset[IpAddress]:
        """Open the addresses of an answer to a container, and keep them open.

        Returns:
            Those among them that are the host's own, which are not opened.

        Raises:
            RecordGone: The record is no longer in force; nothing was opened.
            OSError: The kernel refuses, or the container has opened too many addresses.
        """
        now = self._now()
        due, end = now + ttl_s + self._grace_s / 2, now + ttl_s + self._grace_s
        if self._names.is_open(record, question, addresses, due):
            return frozenset()
        own = await self._open_until(record, question, addresses, now, end)
        opened = tuple(one for one in addresses if one not in own)
        if opened:
            self._names.note(record, question, opened, due=due, end=end)
        return own

    async def _open_until(
        self, record: Record, question: Question, addresses: tuple[IpAddress, ...], now: float, end: float
    ) -> frozenset[IpAddress]:
        ports = record.policy.ports_of(to_text(question.name))
        if not ports:  # audit: everything passes
            return frozenset()
        if not self._names.admit(record, len(addresses), now=now, end=end):
            raise OSError(errno.ENOSPC, "it has opened too many addresses lately")
        timeout_s = max(end, self._names.end_of(record, addresses)) - now
        return await self._opening.open(record, addresses, ports, timeout_s)

    def renew_all_soon(self) -> None:
        """Have all names opened again: the kernel has lost them."""
        self._names.make_all_due()
        self._lost.set()

    async def run(self) -> None:
        """Renew names until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._lost.wait()
            except TimeoutError:
                pass
            self._lost.clear()
            await self.renew_due()

    async def renew_due(self) -> None:
        """Renew the names whose time has come."""
        places = asyncio.Semaphore(_TOGETHER)

        async def renew(record: Record, question: Question) -> None:
            async with places:
                await self._renew(record, question)

        async with asyncio.TaskGroup() as tasks:
            for record, question in tuple(self._names.due(self._now())):
                tasks.create_task(renew(record, question))

    async def _renew(self, former: Record, question: Question) -> None:
        try:
            record = self._records.by_source(former.addresses[0])
        except BadRecord:  # logged when it asks
            record = None
        if record is None or (record.container_id, record.ifname) != (former.container_id, former.ifname):
            self._names.forget(former)
            return
        policy = record.policy
        now = self._now()
        try:
            response = await self._cache.resolve(question, anew=True)
            kept = keep(response, permits=lambda address: has_network(policy, address))
            if not kept.addresses or not policy.ports_of(to_text(question.name)):
                self._names.forget(record, question)
                return
            due, end = now + kept.ttl_s + self._grace_s / 2, now + kept.ttl_s + self._grace_s
            own = await self._open_until(record, question, kept.addresses, now, end)
        except RecordGone:
            self._names.forget(former)
        except (NoResponse, OSError) as exc:
            log.warning("%s: %s is not renewed yet: %s", record, to_text(question.name), exc)
            self._names.postpone(record, question, now + _RETRY_S)
        else:
            opened = tuple(one for one in kept.addresses if one not in own)
            self._names.renew(record, question, opened, due=due, end=end)
