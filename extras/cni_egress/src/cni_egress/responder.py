# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Answers the queries of containers: who asks is decided by the source address, and what it may ask by its policy.

An answer is sent when the kernel has acknowledged that its addresses may be reached. What is not delivered opens
nothing.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

from cni_egress.answers import Kept, decide, has_network, keep
from cni_egress.cache import Cache
from cni_egress.durations import Durations
from cni_egress.message import (
    TCP_BYTES,
    Malformed,
    Query,
    Rcode,
    parse_query,
    render_format_error,
    render_response,
    to_text,
)
from cni_egress.records import BadRecord, IpAddress, Record, RecordGone, Records
from cni_egress.refusals import Kind, Refusal, Why
from cni_egress.renewal import Renewal
from cni_egress.sockets import Sockets
from cni_egress.supervisor import RateLimit
from cni_egress.upstream import NoResponse

__all__ = ["Responder"]

log = logging.getLogger(__name__)


_REFUSAL_PAUSE_S: Final = 0.05
"""How long NXDOMAIN waits: musl asks dockerd's server, too, whose answer for a container must come first."""
_DATAGRAMS: Final = 64
"""How many datagrams are read at once, before others have their turn."""
_QUERIES: Final = 128
"""How many queries of one container may wait: a container that asks without end takes nothing from others."""
_CONNECTIONS: Final = 16
"""How many TCP connections one container may have."""
_IDLE_S: Final = 10.0
_PAUSE_S: Final = 0.1
_DATAGRAM_BYTES: Final = 4096
_LENGTH_BYTES: Final = 2


class Responder:
    """The answers to queries.

    Attributes:
        counts: How many queries there were, by network and outcome.
        durations: How long the answers to allowed queries took.

    Args:
        records: Says whose policy a query has.
        cache: Resolves questions.
        renewal: Opens the addresses of answers, and keeps them open.
        refuse: Receives what was refused.
    """

    def __init__(
        self,
        records: Records,
        cache: Cache,
        renewal: Renewal,
        refuse: Callable[[Refusal], None],
    ) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.durations = Durations()
        self._records = records
        self._cache = cache
        self._renewal = renewal
        self._refuse = refuse
        self._failures = RateLimit()
        self._waiting: Counter[str] = Counter()
        self._connected: Counter[str] = Counter()

    async def serve(self, sockets: Sockets) -> None:
        """Answer queries until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            for sock in sockets.tcp:
                tasks.create_task(self._accept(sock, tasks))
            try:
                for sock in sockets.udp:
                    loop.add_reader(sock, self._receive, sock, tasks)
                await asyncio.Event().wait()
            finally:
                for sock in sockets.udp:
                    loop.remove_reader(sock)

    async def answer(self, data: bytes, source: IpAddress, *, is_tcp: bool) -> bytes | None:
        """Return the response to a message from an address; None if there is none."""
        try:
            query = parse_query(data)
        except Malformed:
            self.counts["", "malformed"] += 1
            return render_format_error(data)
        limit = TCP_BYTES if is_tcp else query.udp_bytes
        record = self._find(source)
        network = "" if record is None else record.network
        try:
            rcode, response = await self._respond(query, source, record, limit)
        except RecordGone:
            self.counts[network, "gone"] += 1
            return None
        self.counts[network, rcode.name.lower()] += 1
        return response or render_response(query, rcode, limit=limit)[0]

    async def _respond(
        self, query: Query, source: IpAddress, record: Record | None, limit: int
    ) -> tuple[Rcode, bytes | None]:
        """Return the outcome of a query, and the response if it is more than the outcome."""
        name = to_text(query.question.name)
        if record is None:
            self._refuse(Refusal(kind=Kind.NAME, why=Why.SOURCE, source=str(source), name=name))
            return Rcode.REFUSED, None
        policy = record.policy
        ports = policy.ports_of(name)
        rcode = decide(query, is_allowed=bool(ports) or policy.audit)
        if not ports or rcode == Rcode.REFUSED:
            self._refuse_name(record, source, query, is_allowed=bool(ports))
        if rcode is not None:
            if rcode == Rcode.NXDOMAIN:
                await asyncio.sleep(_REFUSAL_PAUSE_S)
            return rcode, None
        begin = time.monotonic()
        try:
            return await self._resolve(record, source, query, limit)
        finally:
            self.durations.add(time.monotonic() - begin)

    async def _resolve(self, record: Record, source: IpAddress, query: Query, limit: int) -> tuple[Rcode, bytes | None]:
        """Return the outcome of a query that is allowed, and the response if it is more than the outcome."""
        name, policy = to_text(query.question.name), record.policy
        try:
            response = await self._cache.resolve(query.question)
        except NoResponse as exc:
            log.debug("%s is not resolved: %s", name, exc)
            return Rcode.SERVFAIL, None
        kept = keep(response, permits=lambda address: policy.audit or has_network(policy, address))
        self._refuse_addresses(record, source, name, kept.dropped, Why.NOT_PUBLIC)
        return await self._deliver(record, source, query, kept, limit)

    async def _deliver(
        self, record: Record, source: IpAddress, query: Query, kept: Kept, limit: int
    ) -> tuple[Rcode, bytes]:
        """Open the addresses of an answer, and return what may be sent then."""
        wire, is_whole = render_response(query, kept.rcode, kept.records, kept.soa, limit=limit)
        if is_whole and kept.addresses:
            try:
                local = await self._renewal.open(record, query.question, kept.addresses, kept.ttl_s)
            except OSError as exc:
                if count := self._failures.count():
                    log.error(  # noqa: TRY400
                        "%s: %s is not opened: %s (%d times)", record, to_text(query.question.name), exc, count
                    )
                return Rcode.SERVFAIL, render_response(query, Rcode.SERVFAIL, limit=limit)[0]
            if local:
                self._refuse_addresses(record, source, to_text(query.question.name), tuple(local), Why.HOST)
                kept = kept.without(local)
                wire, _ = render_response(query, kept.rcode, kept.records, kept.soa, limit=limit)
        return Rcode(kept.rcode), wire

    def _find(self, source: IpAddress) -> Record | None:
        try:
            return self._records.by_source(source)
        except BadRecord as exc:
            if count := self._failures.count():
                log.error("a container is refused: %s (%d times)", exc, count)  # noqa: TRY400
            return None

    def _refuse_name(self, record: Record, source: IpAddress, query: Query, *, is_allowed: bool) -> None:
        self._refuse(
            Refusal(
                kind=Kind.NAME,
                why=Why.TYPE if is_allowed else Why.NAME,
                source=str(source),
                container=record.container_id,
                network=record.network,
                name=to_text(query.question.name),
                type=query.question.type,
                audit=record.policy.audit and not is_allowed,
            )
        )

    def _refuse_addresses(
        self, record: Record, source: IpAddress, name: str, addresses: tuple[IpAddress, ...], why: Why
    ) -> None:
        for address in addresses:
            self._refuse(
                Refusal(
                    kind=Kind.ADDRESS,
                    why=why,
                    source=str(source),
                    container=record.container_id,
                    network=record.network,
                    name=name,
                    address=str(address),
                )
            )

    def _receive(self, sock: socket.socket, tasks: asyncio.TaskGroup) -> None:
        for _ in range(_DATAGRAMS):
            try:
                data, peer = sock.recvfrom(_DATAGRAM_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            if self._waiting[peer[0]] >= _QUERIES:
                self.counts["", "dropped"] += 1
                continue
            self._waiting[peer[0]] += 1
            tasks.create_task(self._answer_datagram(sock, data, peer))

    async def _answer_datagram(self, sock: socket.socket, data: bytes, peer: tuple[str, int]) -> None:
        response = await self._answer_counted(data, peer[0], is_tcp=False)
        if response is not None:
            with suppress(OSError):  # it has gone, or its link is full: then it asks again
                sock.sendto(response, peer)

    async def _answer_counted(self, data: bytes, host: str, *, is_tcp: bool) -> bytes | None:
        """Answer a query that has been counted as waiting. A bug in one answer must not end all others."""
        try:
            return await self.answer(data, ip_address(host), is_tcp=is_tcp)
        except Exception:
            log.exception("a query is not answered")
            return None
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]

    async def _accept(self, sock: socket.socket, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(sock)
            except OSError as exc:  # no free descriptor
                log.warning("a connection is not accepted: %s", exc)
                await asyncio.sleep(_PAUSE_S)
                continue
            if self._connected[peer[0]] >= _CONNECTIONS:
                self.counts["", "dropped"] += 1
                connection.close()
                continue
            self._connected[peer[0]] += 1
            tasks.create_task(self._serve_connection(connection, peer[0]))

    async def _serve_connection(self, connection: socket.socket, host: str) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=TCP_BYTES)
            try:
                while True:
                    await self._serve_query(reader, writer, host)
            finally:
                writer.transport.abort()
        except (OSError, EOFError):  # it is closed, or silent for too long
            pass
        finally:
            self._connected[host] -= 1
            if not self._connected[host]:
                del self._connected[host]

    async def _serve_query(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        async with asyncio.timeout(_IDLE_S):
            length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
            data = await reader.readexactly(length)
        self._waiting[host] += 1
        response = await self._answer_counted(data, host, is_tcp=True)
        if response is None:
            raise EOFError
        async with asyncio.timeout(_IDLE_S):
            writer.write(len(response).to_bytes(_LENGTH_BYTES, "big") + response)
            await writer.drain()
