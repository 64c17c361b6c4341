# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""rtnetlink: a conversation with the kernel about the links, addresses and routes of one namespace.

The only user of pyroute2, and of it only the messages: what they look like on the wire. Its sockets are left aside.
They bring an event loop each, which costs more than all our requests together, and, used from another thread, they open
a second socket in whatever namespace that thread is in; a plain socket belongs to the namespace it was made in.

Needs Linux 5.5 (alternative names of links).
"""

import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from errno import EINTR, EPROTO
from types import TracebackType
from typing import Any, Final, Self

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

__all__ = ["Attributes", "Message", "Netlink"]

Attributes = Sequence[tuple[str, "int | str | Attributes"]]
"""Attributes by the kernel's names, in order, nested as they are there: `(("IFLA_IFNAME", "eth0"),)`."""

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_ERROR: Final = struct.Struct("=i")  # what follows it in NLMSG_ERROR and NLMSG_DONE: minus errno, or 0
_RECEIVE_BYTES: Final = 65536  # the kernel fills dump buffers up to 32 KiB


class Message:
    """One message of the kernel; its fields and attributes are asked for by the kernel's names.

    An attribute is decoded when it is asked for, not before: of the sixty of a link six are read.
    """

    __slots__ = ("_attributes", "_message", "_slots")

    def __init__(self, message: Any) -> None:  # noqa: ANN401 - pyroute2 has no types; they begin here
        self._message = message
        self._slots = message.get("attrs", ())
        self._attributes = {slot.name: slot for slot in self._slots}

    def __contains__(self, name: str) -> bool:
        return name in self._attributes

    def field(self, name: str) -> int:
        """Give a field of the fixed part."""
        value = self._message[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is no number")
        return value

    def number(self, name: str) -> int | None:
        """Give a number, None where the attribute is absent."""
        value = self._value(name)
        return value if isinstance(value, int) else None

    def text(self, name: str) -> str | None:
        """Give a text, None where the attribute is absent; addresses are texts."""
        value = self._value(name)
        return value if isinstance(value, str) else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Give the texts of an attribute that may come several times."""
        return tuple(slot.value for slot in self._slots if slot.name == name)

    def member(self, name: str, key: str) -> str | None:
        """Give a text of an attribute that has a fixed layout, None where the attribute is absent."""
        value = self._value(name)
        return None if value is None else str(value[key])

    def nested(self, name: str) -> "Message | None":
        """Give the attributes inside an attribute, None where it is absent."""
        value = self._value(name)
        return None if value is None else Message(value)

    def _value(self, name: str) -> Any:  # noqa: ANN401
        slot = self._attributes.get(name)
        return None if slot is None else slot.value


class Netlink:
    """A conversation with the namespace that its thread is in when it is made; no other thread may use it.

    Args:
        reply_limit_s: How long the kernel may let a reply wait, in seconds. It answers at once when it has the routing
            lock: what passes the limit is a reply that was lost.
    """

    def __init__(self, *, reply_limit_s: float) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self._socket.settimeout(reply_limit_s)
        # errors in words, and dumps filtered by the kernel
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
        self, kind: int, fields: Mapping[str, int], attributes: Attributes = (), *, flags: int = 0
    ) -> tuple[Message, ...]:
        """Ask for one thing to be done or told and give the kernel's answer, empty where there is none but "done".

        Args:
            kind: The type of the message, e.g. `RTM_NEWLINK`.
            fields: Fields of its fixed part by the kernel's names; those not given are 0.
            attributes: What follows it.
            flags: Beyond the ordinary ones, e.g. `NLM_F_CREATE`.

        Raises:
            OSError: The kernel refused, in its words; or did not answer in time.
        """
        self._send(kind, fields, attributes, flags | NLM_F_ACK)
        return tuple(message for message, _ in self._receive())

    def dump(self, kind: int, fields: Mapping[str, int], attributes: Attributes = ()) -> tuple[Message, ...]:
        """Ask for everything that fits fields and attributes; arguments and errors as in `request`.

        Raises:
            OSError: EINTR too: the namespace was changed while it was read, and what was read may be inconsistent.
        """
        self._send(kind, fields, attributes, NLM_F_DUMP)
        messages = []
        interrupted = False
        for message, flags in self._receive():
            messages.append(message)
            interrupted = interrupted or bool(flags & NLM_F_DUMP_INTR)
        if interrupted:
            raise OSError(EINTR, "the namespace changed while it was read")
        return tuple(messages)

    def _send(self, kind: int, fields: Mapping[str, int], attributes: Attributes, flags: int) -> None:
        self._sequence += 1
        message = MarshalRtnl.msg_map[kind]()
        message.update(dict.fromkeys((name for name, _ in message.fields), 0))  # pyroute2 has other defaults
        message.update(fields)
        message["attrs"] = _nest(attributes)["attrs"]
        message["header"].update(type=kind, flags=flags | NLM_F_REQUEST, sequence_number=self._sequence, pid=0)
        message.encode()
        self._socket.send(message.data)

    def _receive(self) -> Iterator[tuple[Message, int]]:
        """Yield the answer's messages with their flags until the kernel says that it is complete."""
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
                message = MarshalRtnl.msg_map[kind](data, offset=offset)
                message.decode()
                yield Message(message), flags
                offset += (length + 3) & ~3


def _nest(attributes: Attributes) -> dict[str, list[tuple[str, object]]]:
    """Give attributes as pyroute2 wants them."""
    return {"attrs": [(name, value if isinstance(value, int | str) else _nest(value)) for name, value in attributes]}


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
