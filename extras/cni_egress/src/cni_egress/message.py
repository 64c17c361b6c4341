# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DNS messages (RFC 1035, RFC 6891), as far as a forwarder needs them: one question, and records with their data.

Whatever bytes come in, the result is a message or `Malformed`. A name is kept in the form of the wire: lower case, not
compressed, with the root's empty label. Only `to_text` makes text of it, and escapes what a host's name cannot have, so
that a label with a dot in it never looks like two labels.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NewType

__all__ = [
    "CLASS_IN",
    "TCP_BYTES",
    "UDP_BYTES",
    "Malformed",
    "Name",
    "Query",
    "Question",
    "Rcode",
    "Record",
    "Response",
    "Type",
    "has_dot",
    "parse_name",
    "parse_query",
    "parse_response",
    "read_target",
    "render_format_error",
    "render_query",
    "render_response",
    "to_text",
]

Name = NewType("Name", bytes)

CLASS_IN: Final = 1
UDP_BYTES: Final = 1232
"""The largest message by UDP that is sent or asked for; it fits every path (dnsflagday.net/2020)."""
TCP_BYTES: Final = 65535

_LEAST_UDP_BYTES: Final = 512
_HEADER: Final = struct.Struct(">6H")  # ID, flags, and the numbers of questions and records of three sections
_QUESTION: Final = struct.Struct(">HH")  # type, class
_RECORD: Final = struct.Struct(">HHIH")  # type, class, TTL, length of the data
_QR, _TC, _RD, _RA = 0x8000, 0x0200, 0x0100, 0x0080
_OPCODE_SHIFT: Final = 11
_OPCODE: Final = 0xF
_RCODE: Final = 0xF
_LABEL_BYTES: Final = 63
_NAME_BYTES: Final = 255
_POINTER: Final = 0xC0
_POINTER_END: Final = 0x4000
_OLDEST_TTL: Final = 1 << 31  # a TTL with this bit counts as 0 (RFC 2181, section 8)
_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_*")


class Type(IntEnum):
    """The record types that are treated in a way of their own."""

    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    MX = 15
    TXT = 16
    AAAA = 28
    SRV = 33
    DNAME = 39
    OPT = 41
    SVCB = 64
    HTTPS = 65
    ANY = 255


class Rcode(IntEnum):
    """The outcomes of a query that are sent or understood."""

    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5


_NAMES_IN_DATA: Final[Mapping[int, tuple[int, int]]] = {
    Type.NS: (0, 1),
    Type.CNAME: (0, 1),
    Type.SOA: (0, 2),
    Type.PTR: (0, 1),
    Type.MX: (2, 1),
    Type.SRV: (6, 1),
    Type.DNAME: (0, 1),
}
"""The types whose data has names: the bytes before them, and how many. Others are not compressed (RFC 3597)."""


class Malformed(ValueError):
    """Bytes are not a DNS message of the expected kind."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a name, a type and a class."""

    name: Name
    type: int
    klass: int = CLASS_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query as it came from a client.

    Attributes:
        id: Its ID.
        flags: Its flags; the opcode is among them.
        question: What it asks.
        asked: The question's name as the client wrote it: some compare upper and lower case in the response.
        has_edns: Whether the response must have EDNS, too.
        udp_bytes: The largest response by UDP.
    """

    id: int
    flags: int
    question: Question
    asked: bytes
    has_edns: bool
    udp_bytes: int

    @property
    def opcode(self) -> int:
        """What kind of request it is; 0 is a query."""
        return self.flags >> _OPCODE_SHIFT & _OPCODE


@dataclass(frozen=True, slots=True)
class Record:
    """A record. Names in the data are not compressed."""

    name: Name
    type: int
    klass: int
    ttl: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response of a server.

    Attributes:
        id: The ID of the query that it answers.
        question: The question that it answers.
        rcode: The outcome.
        is_truncated: Whether it is not whole, so that the query must be sent by TCP.
        answers: Its answer section.
        soa: The first SOA record of its authority section, which says how long a negative answer holds.
    """

    id: int
    question: Question
    rcode: int
    is_truncated: bool = False
    answers: tuple[Record, ...] = ()
    soa: Record | None = None


def parse_name(text: str) -> Name:
    """Return the name that a text means, e.g. `www.example.com`.

    Raises:
        Malformed: It is not a name.
    """
    labels = text.removesuffix(".").lower().encode("ascii", "replace").split(b".") if text not in {"", "."} else []
    if any(not 0 < len(label) <= _LABEL_BYTES for label in labels):
        raise Malformed(f"{text!r} has a label that is empty or too long")
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    if len(name) > _NAME_BYTES:
        raise Malformed(f"{text!r} is too long")
    return Name(name)


def to_text(name: Name) -> str:
    r"""Return a name as text without a dot at the end; bytes that a host's name cannot have become `\DDD`."""
    labels = []
    at = 0
    while length := name[at]:
        label = name[at + 1 : at + 1 + length]
        labels.append("".join(chr(one) if one in _LETTERS else f"\\{one:03}" for one in label))
        at += 1 + length
    return ".".join(labels)


def has_dot(name: Name) -> bool:
    """Return whether a name has two labels or more."""
    first = name[0]
    return first != 0 and name[1 + first] != 0


def parse_query(data: bytes) -> Query:
    """Parse what a client has sent.

    Raises:
        Malformed: It is not a query with exactly one question.
    """
    ident, flags, questions, *counts = _unpack(_HEADER, data, 0)
    if flags & _QR or questions != 1:
        raise Malformed("not a query with one question")
    reader = _Reader(data)
    question, at = reader.question()
    asked = data[_HEADER.size : at - _QUESTION.size]
    opt = None
    for _ in range(sum(counts)):
        record, at = reader.record(at)
        opt = record if record.type == Type.OPT else opt
    return Query(
        id=ident,
        flags=flags,
        question=question,
        asked=asked,
        has_edns=opt is not None,
        udp_bytes=_LEAST_UDP_BYTES if opt is None else max(_LEAST_UDP_BYTES, min(opt.klass, UDP_BYTES)),
    )


def parse_response(data: bytes) -> Response:
    """Parse what a server has sent. The records of a truncated response are not read.

    Raises:
        Malformed: It is not a response with exactly one question.
    """
    ident, flags, questions, answer_count, authority_count, _ = _unpack(_HEADER, data, 0)
    if not flags & _QR or questions != 1:
        raise Malformed("not a response with one question")
    reader = _Reader(data)
    question, at = reader.question()
    rcode = flags & _RCODE
    if flags & _TC:
        return Response(id=ident, question=question, rcode=rcode, is_truncated=True)
    answers = []
    for _ in range(answer_count):
        record, at = reader.record(at)
        answers.append(record)
    soa = None
    for _ in range(authority_count):
        record, at = reader.record(at)
        soa = record if soa is None and record.type == Type.SOA else soa
    return Response(id=ident, question=question, rcode=rcode, answers=tuple(answers), soa=soa)


def render_query(ident: int, question: Question) -> bytes:
    """Return a query that asks a resolver to find the answer, with EDNS."""
    opt = b"\0" + _RECORD.pack(Type.OPT, UDP_BYTES, 0, 0)
    return _HEADER.pack(ident, _RD, 1, 0, 0, 1) + question.name + _QUESTION.pack(question.type, question.klass) + opt


def render_response(
    query: Query, rcode: int, answers: tuple[Record, ...] = (), soa: Record | None = None, *, limit: int
) -> tuple[bytes, bool]:
    """Return the response to a query, and whether all of it fits.

    A response that is larger than the limit is truncated: it has no record at all.
    """
    data = bytearray(query.asked)
    data += _QUESTION.pack(query.question.type, query.question.klass)
    places = {query.question.name: _HEADER.size}
    for record in (*answers, *([] if soa is None else [soa])):
        place = places.get(record.name)
        if place is None:
            place = _HEADER.size + len(data)
            if place < _POINTER_END:
                places[record.name] = place
            data += record.name
        else:
            data += (_POINTER << 8 | place).to_bytes(2, "big")
        data += _RECORD.pack(record.type, record.klass, record.ttl, len(record.data)) + record.data
    opt = b"\0" + _RECORD.pack(Type.OPT, UDP_BYTES, 0, 0) if query.has_edns else b""
    flags = _QR | query.flags & (_OPCODE << _OPCODE_SHIFT | _RD) | _RA | rcode
    if _HEADER.size + len(data) + len(opt) > limit:
        del data[len(query.asked) + _QUESTION.size :]
        header = _HEADER.pack(query.id, flags | _TC, 1, 0, 0, bool(opt))
        return header + data + opt, False
    header = _HEADER.pack(query.id, flags, 1, len(answers), 0 if soa is None else 1, bool(opt))
    return header + data + opt, True


def render_format_error(data: bytes) -> bytes | None:
    """Return the response to bytes that are no query with one question; None if they do not even begin like a query."""
    if len(data) < _HEADER.size:
        return None
    ident, flags, *_ = _HEADER.unpack_from(data)
    if flags & _QR:
        return None
    return _HEADER.pack(ident, _QR | flags & (_OPCODE << _OPCODE_SHIFT | _RD) | Rcode.FORMERR, 0, 0, 0, 0)


def read_target(record: Record) -> Name:
    """Return the name to which a CNAME record leads."""
    return Name(record.data)


def _unpack(layout: struct.Struct, data: bytes, at: int) -> tuple[int, ...]:
    if at + layout.size > len(data):
        raise Malformed("the message is too short")
    return layout.unpack_from(data, at)


class _Reader:
    """Reads the parts of a message. It remembers names, so that the time depends on the message's length only."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._names: dict[int, bytes] = {}

    def name(self, at: int) -> tuple[Name, int]:
        """Return the name at an offset, and the offset behind it.

        A pointer must lead to an earlier place than the part that it continues, so that there is no loop.

        Raises:
            Malformed: No name begins there.
        """
        data = self._data
        if at + 1 < len(data) and data[at] >= _POINTER:
            known = self._names.get((data[at] & ~_POINTER) << 8 | data[at + 1])
            if known is not None:  # usual, and one object for all records of a name saves memory
                return Name(known), at + 2
        labels = bytearray()
        parts = [(at, 0)]
        behind = -1
        while True:
            if at >= len(data):
                raise Malformed("a name goes beyond the message")
            length = data[at]
            if length <= _LABEL_BYTES:
                end = at + 1 + length
                labels += data[at:end]
                behind = end if length == 0 and behind < 0 else behind
                at = end
                is_whole = length == 0
            elif length >= _POINTER and at + 1 < len(data):
                target = (length & ~_POINTER) << 8 | data[at + 1]
                if target >= parts[-1][0]:
                    raise Malformed("a pointer does not lead back")
                behind = at + 2 if behind < 0 else behind
                known = self._names.get(target)
                labels += known or b""
                at = target
                parts.append((target, len(labels)))
                is_whole = known is not None
            else:
                raise Malformed("a label of an unknown kind")
            if at > len(data) or len(labels) > _NAME_BYTES:
                raise Malformed("a name is too long")
            if is_whole:
                break
        whole = bytes(labels).lower()  # a length is never a letter
        for begin, before in parts:
            self._names.setdefault(begin, whole[before:])
        return Name(whole), behind

    def question(self) -> tuple[Question, int]:
        """Return the first question, and the offset behind it."""
        name, at = self.name(_HEADER.size)
        if at != _HEADER.size + len(name):
            raise Malformed("the question's name is compressed")
        kind, klass = _unpack(_QUESTION, self._data, at)
        return Question(name, kind, klass), at + _QUESTION.size

    def record(self, at: int) -> tuple[Record, int]:
        """Return the record at an offset, and the offset behind it."""
        name, at = self.name(at)
        kind, klass, ttl, length = _unpack(_RECORD, self._data, at)
        at += _RECORD.size
        end = at + length
        if end > len(self._data):
            raise Malformed("a record goes beyond the message")
        before, names = _NAMES_IN_DATA.get(kind, (0, 0))
        content = self._data[at : at + before]
        at += before
        for _ in range(names):
            inside, at = self.name(at)
            content += inside
        if at > end:
            raise Malformed("the data of a record goes beyond it")
        content += self._data[at:end]
        return Record(name, kind, klass, 0 if ttl >= _OLDEST_TTL else ttl, content), end
