# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks the resolvers of the host: by UDP with a random port and ID, by TCP what is truncated, and the next one in time.

A question costs one UDP socket for each resolver that it is sent to, and no task, so that questions which wait for a
slow resolver hinder no others.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cni_egress.message import (
    TCP_BYTES,
    Malformed,
    Question,
    Rcode,
    Response,
    parse_response,
    render_query,
)

__all__ = ["NoResponse", "ResolvConf", "Server", "Upstream"]

_PORT: Final = 53
_LAST_PORT: Final = 65535

_PATIENCE_S: Final = 0.8
"""How long one resolver may be silent before another is asked as well."""
_LIMIT_S: Final = 4.0
"""How long a question may take: libc gives up after five seconds."""
_TCP_S: Final = 2.0
"""How long a response by TCP may take; the next resolver still has its time."""
_SLOW_S: Final = 10.0
"""How long a resolver that was silent is asked last."""
_TRIES: Final = 2
"""How often each resolver is asked: a datagram may be lost."""
_LENGTH_BYTES: Final = 2
_ANSWERED: Final = frozenset({Rcode.NOERROR, Rcode.NXDOMAIN})


class NoResponse(Exception):
    """No resolver has answered in time."""


@dataclass(frozen=True, slots=True)
class Server:
    """A resolver: its address, for IPv6 with a scope if it needs one, and its port."""

    host: str
    port: int = _PORT

    @classmethod
    def parse(cls, text: str) -> "Server":
        """Parse an address, or an address with a port, e.g. `10.0.0.1:5353` or `[2001:db8::1]:5353`.

        Raises:
            ValueError: It is something else.
        """
        host, port = text, ""
        if text.startswith("["):
            host, bracket, port = text[1:].partition("]")
            if not bracket or (port and not port.startswith(":")):
                raise ValueError(f"{text!r} is not of the form [ADDRESS]:PORT")
            port = port.removeprefix(":")
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
        ip_address(host)
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
            raise ValueError(f"{text!r} has no port between 1 and {_LAST_PORT}")
        return cls(host, int(port) if port else _PORT)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ResolvConf:
    """The resolvers that a file like /etc/resolv.conf names; it is read again when it has changed.

    Args:
        path: The file.
        besides: Addresses that are no resolvers: the daemon's own.
    """

    def __init__(self, path: Path, *, besides: frozenset[str]) -> None:
        self._path = path
        self._besides = besides
        self._seen: tuple[int, int] | None = None
        self._servers: tuple[Server, ...] = ()

    def __call__(self) -> Sequence[Server]:
        """Return the resolvers, in the file's order; none if it has none or cannot be read."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                self._servers = tuple(self._parse(self._path.read_text("utf-8", "replace")))
                self._seen = seen
        except OSError:
            self._seen, self._servers = None, ()
        return self._servers

    def _parse(self, text: str) -> list[Server]:
        servers = []
        for line in text.splitlines():
            match line.split():
                case ["nameserver", host, *_] if host not in self._besides and _is_address(host):
                    servers.append(Server(host))
        return servers


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class Upstream:
    """The resolvers that questions are sent to.

    Attributes:
        is_up: Whether one of them has answered the last question; true before the first one.

    Args:
        servers: Returns them, the best one first.
        questions: How many questions may wait at once.
        now: Returns the time in seconds.
    """

    def __init__(
        self, servers: Callable[[], Sequence[Server]], *, questions: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_up = True
        self._servers = servers
        self._questions = questions
        self._now = now
        self._waiting = 0
        self._slow: dict[Server, float] = {}

    async def ask(self, question: Question) -> Response:
        """Return the first good response to a question; a bad one, such as SERVFAIL, if there is no good one.

        Raises:
            NoResponse: No resolver has answered in time, there is none, or too many questions wait already.
        """
        if self._waiting >= self._questions:
            raise NoResponse("too many questions wait for a resolver")
        self._waiting += 1
        try:
            response = await self._ask(question)
        except NoResponse:
            self.is_up = False
            raise
        else:
            self.is_up = True
            return response
        finally:
            self._waiting -= 1

    async def _ask(self, question: Question) -> Response:
        now = self._now()
        order = sorted(self._servers(), key=lambda server: self._slow.get(server, 0) > now)
        if not order:
            raise NoResponse("no resolver is known")
        deadline = now + _LIMIT_S
        rest = order * _TRIES
        bad: Response | None = None
        with _Exchange(question) as exchange:
            while (left_s := deadline - self._now()) > 0 and (rest or exchange.is_waiting):
                server = rest.pop(0) if rest else None
                if server is not None:
                    exchange.send(server)
                event = await exchange.next_event(min(_PATIENCE_S, left_s) if rest else left_s)
                if event is None:
                    if server is not None:
                        self._slow[server] = self._now() + _SLOW_S
                    continue
                answering, response = event
                if response is not None and response.is_truncated:
                    limit_s = min(_TCP_S, deadline - self._now())
                    response = await _ask_by_tcp(answering, question, limit_s)
                if response is None:
                    self._slow[answering] = self._now() + _SLOW_S
                    continue
                if response.rcode in _ANSWERED:
                    self._slow.pop(answering, None)
                    return response
                bad = response
                rest = [one for one in rest if one != answering]
        if bad is None:
            raise NoResponse(f"no answer from {', '.join(map(str, order))}")
        return bad


class _Exchange:
    """The datagrams of one question: sockets that wait for an answer, and what came."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._loop = asyncio.get_running_loop()
        self._sockets: set[socket.socket] = set()
        self._events: asyncio.Queue[tuple[Server, Response | None]] = asyncio.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in tuple(self._sockets):
            self._close(sock)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer may still come."""
        return bool(self._sockets) or not self._events.empty()

    def send(self, server: Server) -> None:
        """Ask a resolver; if that fails, it is an event."""
        family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
        ident = int.from_bytes(secrets.token_bytes(2), "big")
        try:
            sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:  # no free descriptor
            self._events.put_nowait((server, None))
            return
        self._sockets.add(sock)
        try:
            sock.connect((server.host, server.port))  # the kernel chooses a random port, and takes no other sender
            sock.send(render_query(ident, self._question))
        except OSError:
            self._close(sock)
            self._events.put_nowait((server, None))
            return
        # By its number: the event loop would make text of an object that it does not know, with four system calls.
        self._loop.add_reader(sock.fileno(), self._read, sock, server, ident)

    async def next_event(self, limit_s: float) -> tuple[Server, Response | None] | None:
        """Return the next resolver that has answered or failed, with its response; None after the limit."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._events.get()
        except TimeoutError:
            return None

    def _read(self, sock: socket.socket, server: Server, ident: int) -> None:
        try:
            data = sock.recv(TCP_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # no one listens there
            self._close(sock)
            self._events.put_nowait((server, None))
            return
        response = _answer_to(self._question, ident, data)
        if response is not None:  # otherwise it is forged or damaged, and the right one may still come
            self._close(sock)
            self._events.put_nowait((server, response))

    def _close(self, sock: socket.socket) -> None:
        self._sockets.discard(sock)
        self._loop.remove_reader(sock.fileno())
        sock.close()


def _answer_to(question: Question, ident: int, data: bytes) -> Response | None:
    """Return the response in a message; None if it does not answer this question."""
    try:
        response = parse_response(data)
    except Malformed:
        return None
    return response if (response.id, response.question) == (ident, question) else None


async def _ask_by_tcp(server: Server, question: Question, limit_s: float) -> Response | None:
    """Return the response of a resolver by TCP; None if there is none in time."""
    ident = int.from_bytes(secrets.token_bytes(2), "big")
    query = render_query(ident, question)
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(server.host, server.port, limit=TCP_BYTES)
            try:
                writer.write(len(query).to_bytes(_LENGTH_BYTES, "big") + query)
                length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
                response = _answer_to(question, ident, await reader.readexactly(length))
            finally:
                writer.transport.abort()
    except (OSError, EOFError):  # TimeoutError is an OSError
        return None
    return None if response is None or response.is_truncated else response
