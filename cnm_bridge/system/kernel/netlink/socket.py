# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A netlink socket: requests to the kernel about the links, addresses and routes of one namespace.

We use pyroute2's constants and tables, but not its sockets. Each of those brings an event loop, and if it is used from
another thread it opens a second socket in the namespace of that thread. A plain socket belongs to the namespace in
which it was created.

Needs Linux 5.5 (alternative names of links).
"""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from errno import EINTR, EPROTO
from types import TracebackType
from typing import Final, Self

from pyroute2.netlink import (
    NETLINK_EXT_ACK,
    NETLINK_GET_STRICT_CHK,
    NETLINK_ROUTE,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    SOL_NETLINK,
    nlmsgerr,
)
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from cnm_bridge.system.kernel.netlink.message import Message, Wanted, render_message

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_ERROR: Final = struct.Struct("=i")  # in NLMSG_ERROR and NLMSG_DONE: negative errno, or 0
_DUMP_TRIES: Final = 5  # IPv6 changes its own addresses for a moment after a link comes up
_RECEIVE_BYTES: Final = 65536  # the kernel fills dump buffers up to 32 KiB


def parse_message(kind: int, data: bytes) -> Message:
    """Return a message of a type such as `RTM_NEWLINK`, given its bytes without the netlink header."""
    return Message(MarshalRtnl.msg_map[kind], data)


class Netlink:
    """A netlink socket in the namespace of the thread that creates it; no other thread may use it.

    Args:
        reply_limit_s: How long to wait for a reply, in seconds. The kernel answers as soon as it has the routing lock,
            so a reply that takes longer was lost.
    """

    def __init__(self, *, reply_limit_s: float) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self._socket.settimeout(reply_limit_s)
        # error messages as text, and dumps filtered by the kernel
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def request(
        self, kind: int, fields: Mapping[str, int], attributes: Wanted = (), *, flags: int = 0
    ) -> tuple[Message, ...]:
        """Send one request and return the messages of the reply, none if the kernel only acknowledged it.

        Args:
            kind: The type of the message, e.g. `RTM_NEWLINK`.
            fields: Fields of its fixed part by the kernel's names; those not given are 0.
            attributes: Its attributes.
            flags: Additional flags, e.g. `NLM_F_CREATE`.

        Raises:
            OSError: The kernel refused, or did not reply in time.
        """
        return self.request_raw(kind, render_body(kind, fields, attributes), flags=flags)

    def request_raw(self, kind: int, body: bytes, *, flags: int = 0) -> tuple[Message, ...]:
        """Send a request whose bytes, without the netlink header, are given; otherwise as `request`."""
        self._send(kind, body, flags | NLM_F_ACK)
        return tuple(message for message, _ in self._receive())

    def request_together(self, *requests: tuple[int, bytes, int]) -> None:
        """Send requests in one call: the kernel has carried out all of them before this process can be killed.

        Args:
            requests: Type, bytes without the netlink header, and additional flags of each. None has a reply.

        Raises:
            OSError: The kernel refused one of them; it has tried the others.
        """
        self._sequence += 1
        self._socket.send(
            b"".join(
                _header(kind, body, flags | NLM_F_ACK, self._sequence) + body + bytes(-len(body) % 4)
                for kind, body, flags in requests
            )
        )
        errors = []
        for _ in requests:
            try:
                tuple(self._receive())
            except OSError as exc:
                errors.append(exc)
        if errors:
            raise errors[0]

    def dump(self, kind: int, fields: Mapping[str, int], attributes: Wanted = ()) -> tuple[Message, ...]:
        """Return all objects that match fields and attributes; arguments and errors as in `request`.

        Raises:
            OSError: Also EINTR, if the namespace changed during each attempt to read it.
        """
        body = render_body(kind, fields, attributes)
        for _ in range(_DUMP_TRIES):
            self._send(kind, body, NLM_F_DUMP)
            answer = tuple(self._receive())
            if not any(flags & NLM_F_DUMP_INTR for _, flags in answer):
                return tuple(message for message, _ in answer)
        raise OSError(EINTR, "the namespace changed while it was read")

    def _send(self, kind: int, body: bytes, flags: int) -> None:
        self._sequence += 1
        self._socket.send(_header(kind, body, flags, self._sequence) + body)

    def _receive(self) -> Iterator[tuple[Message, int]]:
        """Yield the messages of the reply with their flags, until it is complete."""
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            offset = 0
            while offset < len(data):
                length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
                if sequence != self._sequence:
                    raise OSError(EPROTO, "the kernel answered another question")
                if kind in {NLMSG_ERROR, NLMSG_DONE}:
                    _raise_error(data, offset, kind)
                    return
                yield parse_message(kind, data[offset + _HEADER.size : offset + length]), flags
                offset += (length + 3) & ~3


def _header(kind: int, body: bytes, flags: int, sequence: int) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | NLM_F_REQUEST, sequence, 0)


def render_body(kind: int, fields: Mapping[str, int], attributes: Wanted) -> bytes:
    """Return the bytes of a request without the netlink header."""
    return render_message(MarshalRtnl.msg_map[kind], fields, attributes)


def _raise_error(data: bytes, offset: int, kind: int) -> None:
    (negative,) = _ERROR.unpack_from(data, offset + _HEADER.size)
    if negative == 0:
        return
    text: object = None
    if kind == NLMSG_ERROR:
        error = nlmsgerr(data, offset=offset)
        error.decode()
        text = error.get_attr("NLMSGERR_ATTR_MSG")
    raise OSError(-negative, text if isinstance(text, str) else os.strerror(-negative))
