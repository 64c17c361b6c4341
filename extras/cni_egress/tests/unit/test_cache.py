# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is remembered of responses, and for how long."""

import asyncio

import pytest

from cni_egress.cache import Cache
from cni_egress.message import CLASS_IN, Question, Rcode, Record, Response, Type, parse_name
from cni_egress.upstream import NoResponse

WWW = Question(parse_name("www.example.com"), Type.A)


class Source:
    """An upstream in memory, and a clock."""

    def __init__(self, ttl: int = 60) -> None:
        self.asked: list[Question] = []
        self.time = 1000.0
        self.ttl = ttl
        self.response: Response | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def ask(self, question: Question) -> Response:
        """Answer a question with an address, or with what is set."""
        self.asked.append(question)
        await self.goes_on.wait()
        if self.response is not None:
            return self.response
        answer = Record(question.name, Type.A, CLASS_IN, self.ttl, b"\x08\x08\x08\x08")
        return Response(id=1, question=question, rcode=Rcode.NOERROR, answers=(answer,))

    def now(self) -> float:
        """Return the time."""
        return self.time


def made(source: Source, size: int = 10) -> Cache:
    """Return a cache of a source."""
    return Cache(source.ask, size=size, now=source.now)


async def test_until_the_ttl_ends() -> None:
    """A response is remembered with what is left of its TTL."""
    source = Source()
    cache = made(source)
    for passed, ttl, asked in ((0, 60, 1), (10.5, 50, 1), (49, 1, 1), (1, 60, 2)):
        source.time += passed
        assert (await cache.resolve(WWW)).answers[0].ttl == ttl
        assert len(source.asked) == asked


async def test_a_ttl_of_zero() -> None:
    """It is asked for each time, and an older response is forgotten."""
    source = Source()
    cache = made(source)
    await cache.resolve(WWW)
    source.ttl = 0
    for _ in range(2):
        await cache.resolve(WWW, anew=True)
    await cache.resolve(WWW)
    assert (len(source.asked), len(cache)) == (4, 0)


async def test_an_hour_at_most() -> None:
    """However long the TTL is."""
    source = Source(ttl=1 << 30)
    cache = made(source)
    await cache.resolve(WWW)
    source.time += 3601
    await cache.resolve(WWW)
    assert len(source.asked) == 2


@pytest.mark.parametrize(
    ("minimum", "remembered_s"), [(5, 5), (3600, 30), (0, 0)], ids=["its minimum", "half a minute", "nothing"]
)
async def test_negative_responses(minimum: int, remembered_s: int) -> None:
    """The SOA record says for how long, up to a limit."""
    source = Source()
    soa = Record(parse_name("example.com"), Type.SOA, CLASS_IN, 7200, b"\0\0" + bytes(16) + minimum.to_bytes(4, "big"))
    source.response = Response(id=1, question=WWW, rcode=Rcode.NXDOMAIN, soa=soa)
    cache = made(source)
    await cache.resolve(WWW)
    source.time += remembered_s - 0.5
    await cache.resolve(WWW)
    assert len(source.asked) == (1 if remembered_s else 2)
    source.time += 1
    await cache.resolve(WWW)
    assert len(source.asked) == (2 if remembered_s else 3)


async def test_errors_are_not_remembered() -> None:
    """Neither SERVFAIL nor an answer that says nothing about its life."""
    source = Source()
    cache = made(source)
    for rcode in (Rcode.SERVFAIL, Rcode.REFUSED, Rcode.NXDOMAIN):
        source.response = Response(id=1, question=WWW, rcode=rcode)
        await cache.resolve(WWW)
    assert (len(source.asked), len(cache)) == (3, 0)


async def test_the_oldest_go_first() -> None:
    """The number of responses is limited; what was used lately stays."""
    source = Source()
    cache = made(source, size=2)
    first, second, third = (Question(parse_name(f"{name}.example"), Type.A) for name in "abc")
    for question in (first, second, first, third, first):
        await cache.resolve(question)
    assert source.asked == [first, second, third]
    await cache.resolve(second)
    assert len(source.asked) == 4


async def test_together() -> None:
    """A question that is asked many times at once goes to the upstream once, also if that fails."""
    source = Source()
    cache = made(source)
    source.goes_on.clear()
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(cache.resolve(WWW)) for _ in range(50)]
        await asyncio.sleep(0)
        source.goes_on.set()
    assert len({id(task.result()) for task in asking}) == len(source.asked) == 1


async def test_together_in_vain() -> None:
    """All who wait learn that there is no answer; the next one asks again."""

    class Failing(Source):
        async def ask(self, question: Question) -> Response:
            await super().ask(question)
            raise NoResponse("none")

    source = Failing()
    cache = made(source)
    for number in range(2):
        source.goes_on.clear()
        asking = [asyncio.ensure_future(cache.resolve(WWW)) for _ in range(3)]  # noqa: TID251
        await asyncio.sleep(0)
        source.goes_on.set()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(result) for result in results] == [NoResponse] * 3
        assert len(source.asked) == number + 1
