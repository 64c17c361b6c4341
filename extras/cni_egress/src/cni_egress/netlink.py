# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Netlink: one socket, requests that the kernel has acknowledged when they return, and nothing that waits forever.

A process `nft` takes 60 ms, and the sets of a thousand containers cost libnftables seconds for each change. A change of
elements through this module takes some tens of microseconds, whatever the sets have.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, Self

__all__ = [
    "ACKNOWLEDGE",
    "CREATE",
    "DUMP",
    "EXCLUSIVE",
    "NESTED",
    "NETFILTER",
    "NetlinkError",
    "Socket",
    "attribute",
    "attributes",
]

NETFILTER: Final = 12
"""The protocol of nf_tables, connection tracking and NFLOG."""

ACKNOWLEDGE: Final = 0x4
EXCLUSIVE: Final = 0x200
CREATE: Final = 0x400
DUMP: Final = 0x300
NESTED: Final = 0x8000
"""The mark of an attribute that has attributes."""

_REQUEST: Final = 0x1
_DUMP_INTERRUPTED: Final = 0x10
_ERROR: Final = 2
_DONE: Final = 3
_HEADER: Final = struct.Struct("=LHHLL")
_ATTRIBUTE: Final = struct.Struct("=HH")
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_SOL_NETLINK: Final = 270
_CAP_ACK: Final = 10
_BUFFER: Final = 16 << 20
"""For the largest request, which puts back the tables of thousands of containers."""
_READ: Final = 1 << 18
_TIMEOUT_S: Final = 10.0
_ATTEMPTS: Final = 20
"""How often a listing is begun again because something was changed meanwhile."""


class NetlinkError(OSError):
    """The kernel has refused a request, or has not answered it."""


def attribute(kind: int, data: bytes) -> bytes:
    """Return an attribute with its padding."""
    return _ATTRIBUTE.pack(len(data) + 4, kind) + data + b"\0" * (-len(data) % 4)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the attributes of a message, without the mark of nested ones."""
    while len(data) >= 4:  # noqa: PLR2004  # the header of an attribute
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < 4:  # noqa: PLR2004
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


class Socket:
    """A netlink socket, in the network namespace of the thread that makes it.

    Args:
        protocol: The part of the kernel, e.g. `socket.NETLINK_ROUTE`.
        timeout_s: How long the kernel may take for an answer, in seconds.
    """

    def __init__(self, protocol: int, timeout_s: float = _TIMEOUT_S) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        for option, fallback in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF), (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, fallback, _BUFFER)
        with suppress(OSError):  # acknowledgements without a copy of the request
            self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.settimeout(timeout_s)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._buffer = bytearray(_READ)  # a new one for each message would be a mapping of memory each time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    @property
    def port(self) -> int:
        """The port of the socket, by which the kernel names it in what it tells others of its changes."""
        port: int = self._socket.getsockname()[0]
        return port

    @property
    def sequence(self) -> int:
        """The sequence number of the last message."""
        return self._sequence

    def message(self, kind: int, flags: int, body: bytes) -> bytes:
        """Return a message with the next sequence number."""
        self._sequence += 1
        return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, self._sequence, 0) + body

    def request(self, kind: int, flags: int, body: bytes) -> None:
        """Send one message, and return when it has been carried out.

        Raises:
            NetlinkError: It was refused.
        """
        self.send([self.message(kind, flags | ACKNOWLEDGE, body)], self._sequence)

    def send(self, messages: Iterable[bytes], last: int) -> None:
        """Send messages together, and return when the one with the sequence number `last` is acknowledged.

        Raises:
            NetlinkError: One of them was refused.
        """
        first = last
        data = b"".join(messages)
        if len(data) >= _HEADER.size:
            first = _HEADER.unpack_from(data)[3]
        self._send(data)
        for kind, _, sequence, body in self._receive():
            if kind != _ERROR or not first <= sequence <= self._sequence:
                continue  # the rest of an answer for which nothing waits any more
            _raise(body)
            if sequence == last:
                return

    def ask(self, kind: int, body: bytes) -> bytes | None:
        """Return the body of the answer to a question about one object; None if there is no such object.

        Raises:
            NetlinkError: The question was refused.
        """
        self._send(self.message(kind, 0, body))
        for answer, _, sequence, answer_body in self._receive():
            if sequence != self._sequence:
                continue
            if answer != _ERROR:
                return answer_body
            try:
                _raise(answer_body)
            except NetlinkError as exc:
                if exc.errno == errno.ENOENT:
                    return None
                raise
        return None

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Return the bodies of all messages of a listing; empty if what it is about does not exist.

        Raises:
            NetlinkError: The listing was refused, or changes without end.
        """
        for _ in range(_ATTEMPTS):
            self._send(self.message(kind, DUMP, body))
            found = []
            interrupted = False
            for answer, flags, sequence, answer_body in self._receive():
                if sequence != self._sequence:
                    continue
                interrupted |= bool(flags & _DUMP_INTERRUPTED)
                if answer == _DONE:
                    break
                if answer == _ERROR:
                    try:
                        _raise(answer_body)
                    except NetlinkError as exc:
                        if exc.errno == errno.ENOENT:
                            return []
                        raise
                found.append(answer_body)
            if not interrupted:
                return found
        raise NetlinkError(errno.EINTR, "the kernel's listing changes all the time")

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as exc:
            raise NetlinkError(exc.errno, f"netlink: {exc.strerror}") from exc

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Return kind, flags, sequence number and body of each message that arrives."""
        while True:
            try:
                size = self._socket.recv_into(self._buffer)
            except TimeoutError as exc:
                raise NetlinkError(errno.ETIMEDOUT, "the kernel does not answer") from exc
            except OSError as exc:
                raise NetlinkError(exc.errno, f"netlink: {exc.strerror}") from exc
            data = bytes(memoryview(self._buffer)[:size])
            position = 0
            while len(data) - position >= _HEADER.size:
                length, kind, flags, sequence, _ = _HEADER.unpack_from(data, position)
                yield kind, flags, sequence, data[position + _HEADER.size : position + length]
                position += max(length + 3 & ~3, _HEADER.size)


def _raise(body: bytes) -> None:
    """Raise the error of an acknowledgement, if there is one."""
    number = -struct.unpack_from("=i", body)[0]
    if number:
        raise NetlinkError(number, os.strerror(number))
