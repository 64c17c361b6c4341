# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Resolvers that are slow, silent, gone, or lie: real servers on addresses of the loopback network."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dns.message
import dns.rrset
import pytest

from cni_egress.message import Question, Rcode, Type, parse_name
from cni_egress.upstream import NoResponse, ResolvConf, Server, Upstream
from tests.egress.upstream import FakeUpstream, serving


def question(name: str) -> Question:
    """Return the question for the addresses of a name."""
    return Question(parse_name(name), Type.A)


@pytest.fixture(name="pair")
def start_pair() -> Iterator[tuple[FakeUpstream, FakeUpstream]]:
    """Two resolvers; both know the same names."""
    with ExitStack() as stack:
        first = stack.enter_context(serving(FakeUpstream("127.0.0.1")))
        second = stack.enter_context(serving(FakeUpstream("127.0.0.2")))
        for one in (first, second):
            one.add("www.example.com", "A", "8.8.8.8")
        yield first, second


def asking(*servers: FakeUpstream, questions: int = 100) -> Upstream:
    """Return an upstream of resolvers."""
    known = [Server(one.host, one.port) for one in servers]
    return Upstream(lambda: known, questions=questions)


async def test_the_first_one_answers(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """The second one is not asked, and the port of the question is another one each time."""
    first, second = pair
    upstream = asking(first, second)
    for _ in range(3):
        response = await upstream.ask(question("www.example.com"))
        assert [one.data for one in response.answers] == [b"\x08\x08\x08\x08"]
    assert (first.asked.total(), second.asked.total()) == (3, 0)


@pytest.mark.parametrize("trouble", ["silent", "gone", "SERVFAIL", "REFUSED"])
async def test_the_second_one_answers(pair: tuple[FakeUpstream, FakeUpstream], trouble: str) -> None:
    """If the first one does not; the next question goes to the second one at once."""
    first, second = pair
    if trouble == "silent":
        first.silent.add("www.example.com")
    elif trouble == "gone":
        first = FakeUpstream("127.0.0.3", 1)
    else:
        first.rcodes["www.example.com"] = Rcode[trouble]
    upstream = asking(first, second)
    began = time.monotonic()
    assert (await upstream.ask(question("www.example.com"))).rcode == Rcode.NOERROR
    assert time.monotonic() - began < (3 if trouble == "silent" else 0.7)
    if trouble in {"silent", "gone"}:
        before = first.asked.total()
        assert (await upstream.ask(question("www.example.com"))).rcode == Rcode.NOERROR
        assert first.asked.total() == before


async def test_a_bad_answer_is_better_than_none(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """If all resolvers fail, their answer is given at once."""
    for one in pair:
        one.rcodes["www.example.com"] = Rcode.SERVFAIL
    assert (await asking(*pair).ask(question("www.example.com"))).rcode == Rcode.SERVFAIL


async def test_none_answers(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """That takes four seconds, less than libc waits, and each was asked twice."""
    for one in pair:
        one.silent.add("www.example.com")
    began = time.monotonic()
    with pytest.raises(NoResponse, match=r"no answer from 127\.0\.0\.1:\d+, 127\.0\.0\.2:\d+"):
        await asking(*pair).ask(question("www.example.com"))
    assert 3.9 < time.monotonic() - began < 4.9
    assert [one.asked.total() for one in pair] == [2, 2]


async def test_no_resolver() -> None:
    """Without one there is no answer."""
    with pytest.raises(NoResponse, match="no resolver is known"):
        await asking().ask(question("www.example.com"))


async def test_whether_it_is_up(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """As long as one answers, whatever it answers."""
    servers: list[Server] = []
    upstream = Upstream(lambda: servers, questions=1)
    found = [upstream.is_up]
    with pytest.raises(NoResponse):
        await upstream.ask(question("www.example.com"))
    found.append(upstream.is_up)
    first, _ = pair
    first.rcodes["www.example.com"] = Rcode.SERVFAIL
    servers.append(Server(first.host, first.port))
    await upstream.ask(question("www.example.com"))
    assert [*found, upstream.is_up] == [True, False, True]


async def test_a_slow_name_is_in_nobodys_way(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """While it waits, others are answered; those above the limit fail at once."""
    first, _ = pair
    first.silent.add("slow.example.com")
    upstream = asking(first, questions=50)
    async with asyncio.TaskGroup() as tasks:

        async def ask_slowly() -> None:
            with pytest.raises(NoResponse):
                await upstream.ask(question("slow.example.com"))

        for _ in range(49):
            tasks.create_task(ask_slowly())
        await asyncio.sleep(0.1)
        began = time.monotonic()
        assert (await upstream.ask(question("www.example.com"))).rcode == Rcode.NOERROR
        assert time.monotonic() - began < 0.7
        tasks.create_task(ask_slowly())
        await asyncio.sleep(0)
        with pytest.raises(NoResponse, match="too many"):
            await upstream.ask(question("www.example.com"))


async def test_truncated(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """A truncated answer is asked for again by TCP; if that does not work, the next resolver is asked."""
    first, second = pair
    first.truncated.add("www.example.com")
    assert len((await asking(first).ask(question("www.example.com"))).answers) == 1
    assert first.asked["www.example.com", "A", "tcp"] == 1
    many = tuple(f"8.8.{number}.8" for number in range(250))
    first.add("many.example.com", "A", *many)
    assert len((await asking(first).ask(question("many.example.com"))).answers) == 250
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as only_udp:
        only_udp.bind(("127.0.0.4", 0))
        truncating = Server("127.0.0.4", only_udp.getsockname()[1])
        only_udp.setblocking(False)

        def answer() -> None:
            data, peer = only_udp.recvfrom(4096)
            response = dns.message.make_response(dns.message.from_wire(data))
            response.flags |= dns.flags.TC
            only_udp.sendto(response.to_wire(), peer)

        asyncio.get_running_loop().add_reader(only_udp, answer)
        both = [truncating, Server(second.host, second.port)]
        response = await Upstream(lambda: both, questions=10).ask(question("www.example.com"))
        assert len(response.answers) == 1
        asyncio.get_running_loop().remove_reader(only_udp)


async def test_forged_answers(pair: tuple[FakeUpstream, FakeUpstream]) -> None:
    """Another ID, another question, no response and noise are passed over; the right answer comes after them."""
    first, _ = pair

    def forge(query: dns.message.QueryMessage) -> tuple[bytes, ...]:
        other_id = dns.message.make_response(query)
        other_id.id ^= 1
        other_name = dns.message.make_response(dns.message.make_query("evil.example", "A", id=query.id))
        other_type = dns.message.make_response(dns.message.make_query("www.example.com", "TXT", id=query.id))
        for one in (other_id, other_name):
            one.answer.append(dns.rrset.from_text("www.example.com.", 60, "IN", "A", "6.6.6.6"))
        return other_id.to_wire(), other_name.to_wire(), other_type.to_wire(), query.to_wire(), b"", b"\0" * 11

    first.forged["www.example.com"] = forge
    response = await asking(first).ask(question("www.example.com"))
    assert [one.data for one in response.answers] == [b"\x08\x08\x08\x08"]


def test_resolv_conf(tmp_path: Path) -> None:
    """It is read again when it has changed; our own address, comments and invalid addresses are left out."""
    path = tmp_path / "resolv.conf"
    conf = ResolvConf(path, besides=frozenset({"169.254.53.53"}))
    assert conf() == ()
    path.write_text("# nameserver 192.0.2.9\nnameserver 169.254.53.53\nnameserver 192.0.2.1 # one\nnameserver x\n")
    assert conf() == (Server("192.0.2.1"),)
    changed = tmp_path / "changed"
    changed.write_text("search example\n nameserver\tfe80::1%eth0\n")
    changed.replace(path)
    assert conf() == (Server("fe80::1%eth0"),)
    path.unlink()
    assert conf() == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", Server("10.0.0.1", 53)),
        ("10.0.0.1:5353", Server("10.0.0.1", 5353)),
        ("2001:db8::1", Server("2001:db8::1", 53)),
        ("[2001:db8::1]", Server("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", Server("2001:db8::1", 5353)),
    ],
)
def test_servers(text: str, expected: Server) -> None:
    """A resolver is an address, with or without a port."""
    assert Server.parse(text) == expected
    assert Server.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "dns.example", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x", "[::1", "[::1]5"])
def test_no_servers(text: str) -> None:
    """Names and other ports are refused."""
    with pytest.raises(ValueError, match=r".+"):
        Server.parse(text)
