# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parses and renders rtnetlink messages, with the names, numbers and layouts of pyroute2's tables.

pyroute2's own codec decodes all sixty attributes of a link, of which six are needed. Decoding only the requested ones
reduces the time for a link's snapshot from 0.9 ms to 0.25 ms.
"""

import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

Wanted = Sequence[tuple[str, "int | str | bytes | Wanted"]]
"""Attributes by the kernel's names, possibly nested: `(("IFLA_IFNAME", "eth0"),)`. Numbers have 32 bits."""

_ATTRIBUTE: Final = struct.Struct("=HH")  # nlattr: length including this header; attribute number
_NUMBER: Final = 0x3FFF  # the two higher bits are flags
_NESTED: Final = 0x8000
_WORD: Final = struct.Struct("=I")
_VIA: Final = {6, 18}  # lengths of rtvia: a two-byte address family and an address


class Attributes:
    """The attributes of a message or of another attribute, accessed by the kernel's names.

    Args:
        kind: pyroute2's class of the message or attribute that contains them.
        data: Their bytes.
    """

    __slots__ = ("_kind", "_values")

    def __init__(self, kind: type, data: bytes) -> None:
        self._kind = kind
        self._values: dict[int, list[bytes]] = {}
        for number, value in split_attributes(data):
            self._values.setdefault(number, []).append(value)

    def __contains__(self, name: str) -> bool:
        return self.values(name) != ()

    def names(self) -> set[str]:
        """Return the names of all present attributes; numbers for those that pyroute2 does not know."""
        known = {number: name for name, (number, _) in _table(self._kind).items()}
        return {known.get(number, str(number)) for number in self._values}

    def values(self, name: str) -> tuple[bytes, ...]:
        """Return the bytes of each occurrence of an attribute."""
        number, _ = _table(self._kind)[name]
        return tuple(self._values.get(number, ()))

    def find(self, name: str) -> bytes | None:
        """Return the bytes of an attribute, None if it is absent."""
        return next(iter(self.values(name)), None)

    def number(self, name: str) -> int | None:
        """Return an attribute as an unsigned number, None if it is absent."""
        value = self.find(name)
        return None if value is None else int.from_bytes(value, sys.byteorder)

    def text(self, name: str) -> str | None:
        """Return an attribute as text, None if it is absent."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> tuple[str, ...]:
        r"""Return each occurrence of an attribute as text; names are bytes, and what is not UTF-8 becomes `\xff`."""
        return tuple(value.rstrip(b"\0").decode(errors="backslashreplace") for value in self.values(name))

    def address(self, name: str) -> IPv4Address | IPv6Address | None:
        """Return an attribute as an IP address, with or without a family (RTA_VIA); None if it is absent."""
        value = self.find(name)
        if value is None:
            return None
        return ip_address(value[2:] if len(value) in _VIA else value)

    def nested(self, name: str) -> "Attributes | None":
        """Return the attributes nested in an attribute, None if it is absent."""
        value = self.find(name)
        return None if value is None else Attributes(getattr(self._kind, _table(self._kind)[name][1]), value)


class Message(Attributes):
    """A message: a fixed part and attributes.

    Args:
        kind: pyroute2's class of the message.
        data: The message without the netlink header; kept as `data`.
    """

    __slots__ = ("_fields", "data")

    def __init__(self, kind: type, data: bytes) -> None:
        layout, names = _layout(kind)
        super().__init__(kind, data[layout.size :])
        self.data = data
        self._fields: Mapping[str, int] = dict(zip(names, layout.unpack_from(data), strict=True))

    def field(self, name: str) -> int:
        """Return a field of the fixed part."""
        return self._fields[name]


def render_message(kind: type, fields: Mapping[str, int], wanted: Wanted) -> bytes:
    """Return the bytes of a message without the netlink header.

    Args:
        kind: pyroute2's class of the message.
        fields: Fields of the fixed part; those not given are 0.
        wanted: Its attributes.
    """
    layout, names = _layout(kind)
    return layout.pack(*(fields.get(name, 0) for name in names)) + _render(kind, wanted)


def split_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each attribute in some data."""
    start = 0
    while start < len(data):
        length, number = _ATTRIBUTE.unpack_from(data, start)
        yield number & _NUMBER, data[start + _ATTRIBUTE.size : start + length]
        start += (length + 3) & ~3


def render_attribute(number: int, data: bytes) -> bytes:
    """Return the bytes of an attribute."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), number) + data + bytes(-len(data) % 4)


def _render(kind: type, wanted: Wanted) -> bytes:
    rendered = b""
    for name, value in wanted:
        number, inner = _table(kind)[name]
        if isinstance(value, int):
            data = _WORD.pack(value)
        elif isinstance(value, str):
            data = value.encode() + b"\0"
        elif isinstance(value, bytes):
            data = value
        else:
            number |= _NESTED
            data = _render(getattr(kind, inner), value)
        rendered += render_attribute(number, data)
    return rendered


@cache
def _layout(kind: Any) -> tuple[struct.Struct, tuple[str, ...]]:  # noqa: ANN401 - pyroute2 has no types
    """Return the layout of a message's fixed part and the names of its fields."""
    layout = struct.Struct("=" + "".join(code for _, code in kind.fields))
    return layout, tuple(name for name, code in kind.fields if not code.endswith("x"))  # x: a byte of padding


@cache
def _table(kind: Any) -> dict[str, tuple[int, str]]:  # noqa: ANN401
    """Return the number and the type of each attribute by its name."""
    table = {}
    for position, entry in enumerate(kind.nla_map):
        *number, name, type_name = entry  # without a number, the position is the number
        table[name] = (number[0] if number else position, type_name)
    return table
