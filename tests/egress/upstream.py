# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A resolver for tests, as a real server by UDP and TCP. It writes its messages with dnspython.

It answers as a zone in memory says, and misbehaves for the names of some sets.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_LENGTH_BYTES: Final = 2
_START_S: Final = 10.0
Values = tuple[str, ...] | Callable[[], tuple[str, ...]]


@dataclass
class FakeUpstream:
    """The resolver.

    Attributes:
        host: Its address.
        port: Its port, for UDP and TCP.
        zone: The values of a name and a type, or a function that returns them. A CNAME is followed.
        ttl: The TTL of the records of a name; 60 if there is none.
        rcodes: Outcomes of names instead of an answer.
        delays: Seconds that an answer to a name takes.
        silent: Names that are never answered.
        truncated: Names whose answers are truncated by UDP.
        forged: What is sent before the answer to a name: it gets the query, and returns datagrams.
        asked: How often a name was asked for, by type and transport.
    """

    host: str = "127.0.0.1"
    port: int = 0
    zone: dict[tuple[str, str], Values] = field(default_factory=dict)
    ttl: dict[str, int] = field(default_factory=dict)
    rcodes: dict[str, int] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    truncated: set[str] = field(default_factory=set)
    forged: dict[str, Callable[[dns.message.QueryMessage], tuple[bytes, ...]]] = field(default_factory=dict)
    asked: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, name: str, kind: str, *values: str, ttl: int = 60) -> None:
        """Add the records of a name and a type."""
        self.zone[name, kind] = values
        self.ttl[name] = ttl

    async def answer(self, data: bytes, transport: str) -> tuple[bytes, ...]:
        """Return the messages that answer a query."""
        query = dns.message.from_wire(data)
        assert isinstance(query, dns.message.QueryMessage)
        (question,) = query.question
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked[name, kind, transport] += 1
        if name in self.delays:
            await asyncio.sleep(self.delays[name])
        if name in self.silent:
            return ()
        before = self.forged[name](query) if name in self.forged else ()
        response = dns.message.make_response(query, recursion_available=True)
        if transport == "udp" and name in self.truncated:
            response.flags |= dns.flags.TC
        elif name in self.rcodes:
            response.set_rcode(dns.rcode.Rcode(self.rcodes[name]))
        else:
            self._fill(response, name, kind)
        whole = response.to_wire(max_size=65535)
        if transport == "udp" and len(whole) > max(512, query.payload):
            response.answer.clear()
            response.flags |= dns.flags.TC
            whole = response.to_wire()
        return (*before, whole)

    def _fill(self, response: dns.message.Message, name: str, kind: str) -> None:
        known = {one for one, _ in self.zone}
        while (name, "CNAME") in self.zone and kind != "CNAME":
            target = self._add(response, name, "CNAME")[0]
            name = target.removesuffix(".")
            if len(response.answer) > 20:
                break
        if (name, kind) in self.zone:
            self._add(response, name, kind)
        elif name not in known:
            response.set_rcode(dns.rcode.NXDOMAIN)
            soa = "ns.example. root.example. 1 2 3 4 60"
            response.authority.append(dns.rrset.from_text("example.", 60, "IN", "SOA", soa))

    def _add(self, response: dns.message.Message, name: str, kind: str) -> tuple[str, ...]:
        values = self.zone[name, kind]
        values = values() if callable(values) else values
        response.answer.append(dns.rrset.from_text(f"{name}.", self.ttl.get(name, 60), "IN", kind, *values))
        return values


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, upstream: FakeUpstream, tasks: asyncio.TaskGroup) -> None:
        self._upstream = upstream
        self._tasks = tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._tasks.create_task(self._answer(data, addr))

    async def _answer(self, data: bytes, addr: tuple[str, int]) -> None:
        for message in await self._upstream.answer(data, "udp"):
            self._transport.sendto(message, addr)


async def _serve(upstream: FakeUpstream, is_up: threading.Event, stop: asyncio.Event) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
                for message in await upstream.answer(await reader.readexactly(length), "tcp"):
                    writer.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
                await writer.drain()
        except (EOFError, OSError):
            writer.transport.abort()

    async with asyncio.TaskGroup() as tasks:
        server = await asyncio.start_server(connected, upstream.host, upstream.port)
        upstream.port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        datagrams, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(upstream, tasks), (upstream.host, upstream.port)
        )
        is_up.set()
        stopped = tasks.create_task(stop.wait())
        await stopped
        datagrams.close()
        server.close()


@contextmanager
def serving(upstream: FakeUpstream) -> Iterator[FakeUpstream]:
    """Run a resolver in a thread for the length of the block, in the namespace of the caller."""
    is_up = threading.Event()
    control: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    async def run() -> None:
        control["of"] = (asyncio.get_running_loop(), asyncio.Event())
        await _serve(upstream, is_up, control["of"][1])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert is_up.wait(_START_S)
        yield upstream
    finally:
        loop, stop = control["of"]
        loop.call_soon_threadsafe(stop.set)
        thread.join()
