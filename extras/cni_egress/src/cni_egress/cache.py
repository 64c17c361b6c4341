# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Remembers responses until their TTL ends, and sends a question once, however many ask it at the same time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from cni_egress.answers import LONGEST_TTL_S
from cni_egress.message import Question, Rcode, Record, Response

__all__ = ["Cache"]

_NEGATIVE_S: Final = 30
"""How long a name without an answer is remembered at most, whatever its SOA record says (RFC 2308)."""
_MINIMUM_BYTES: Final = 4
"""The end of an SOA record's data is the TTL of negative answers."""


class Cache:
    """The responses of an upstream.

    Args:
        ask: Sends a question to the upstream.
        size: How many responses are remembered; those that were used longest ago go first.
        now: Returns the time in seconds.
    """

    def __init__(
        self, ask: Callable[[Question], Awaitable[Response]], *, size: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._size = size
        self._now = now
        self._known: OrderedDict[Question, tuple[Response, float, float]] = OrderedDict()  # with its begin and end
        self._asked: dict[Question, asyncio.Future[Response]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, question: Question) -> Response | None:
        """Return the response that is remembered, with what is left of its TTLs; None if there is none."""
        known = self._known.get(question)
        if known is None:
            return None
        response, begin, end = known
        now = self._now()
        if now >= end:
            del self._known[question]
            return None
        self._known.move_to_end(question)
        age = int(now - begin)
        if age == 0:
            return response
        return replace(
            response,
            answers=tuple(_aged(one, age) for one in response.answers),
            soa=None if response.soa is None else _aged(response.soa, age),
        )

    async def resolve(self, question: Question, *, anew: bool = False) -> Response:
        """Return the response to a question, from memory or from the upstream.

        Args:
            question: The question.
            anew: Ask the upstream even if its last response still holds.

        Raises:
            NoResponse: The upstream has not answered in time.
        """
        known = None if anew else self.find(question)
        if known is not None:
            return known
        asked = self._asked.get(question)
        if asked is not None:
            return await asyncio.shield(asked)
        asked = self._asked[question] = asyncio.get_running_loop().create_future()
        try:
            response = await self._ask(question)
        except BaseException as exc:
            if isinstance(exc, Exception):
                asked.set_exception(exc)
                asked.exception()  # it is known, even if no one else has asked
            else:
                asked.cancel()
            raise
        else:
            self._remember(question, response)
            asked.set_result(response)
            return response
        finally:
            del self._asked[question]

    def _remember(self, question: Question, response: Response) -> None:
        ttl_s = _lifetime_s(response)
        if ttl_s <= 0:
            self._known.pop(question, None)
            return
        now = self._now()
        self._known[question] = (response, now, now + ttl_s)
        self._known.move_to_end(question)
        while len(self._known) > self._size:
            self._known.popitem(last=False)


def _lifetime_s(response: Response) -> int:
    """Return how long a response holds, in seconds."""
    if response.rcode not in {Rcode.NOERROR, Rcode.NXDOMAIN}:
        return 0
    shortest = min((one.ttl for one in response.answers), default=LONGEST_TTL_S)
    if response.answers and response.rcode == Rcode.NOERROR:
        return min(shortest, LONGEST_TTL_S)
    if response.soa is None:
        return 0
    minimum = int.from_bytes(response.soa.data[-_MINIMUM_BYTES:], "big")
    return min(shortest, response.soa.ttl, minimum, _NEGATIVE_S)


def _aged(record: Record, age: int) -> Record:
    return replace(record, ttl=max(0, record.ttl - age))
