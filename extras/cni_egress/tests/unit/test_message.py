# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DNS messages, beside those of dnspython, and bytes that are none."""

import struct
from contextlib import suppress

import dns.flags
import dns.message
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_egress.message import (
    CLASS_IN,
    TCP_BYTES,
    Malformed,
    Name,
    Question,
    Rcode,
    Record,
    Type,
    has_dot,
    parse_name,
    parse_query,
    parse_response,
    render_format_error,
    render_query,
    render_response,
    to_text,
)

LABELS = st.binary(min_size=1, max_size=63)
NAMES = st.lists(LABELS, max_size=3).map(lambda labels: dns.name.Name([*labels, b""]))
HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{1,8}){1,3}", fullmatch=True)
TTLS = st.integers(min_value=0, max_value=(1 << 31) - 1)
VALUES = st.one_of(
    st.tuples(st.just("A"), st.ip_addresses(v=4).map(str)),
    st.tuples(st.just("AAAA"), st.ip_addresses(v=6).map(str)),
    st.tuples(st.just("CNAME"), HOSTS.map(lambda host: f"{host}.")),
    st.tuples(st.just("MX"), HOSTS.map(lambda host: f"10 {host}.")),
    st.tuples(st.just("SRV"), HOSTS.map(lambda host: f"1 2 443 {host}.")),
    st.tuples(st.just("TXT"), st.from_regex(r"[a-z ]{0,40}", fullmatch=True).map(lambda text: f'"{text}"')),
    st.tuples(st.just("NS"), HOSTS.map(lambda host: f"{host}.")),
)
RECORDS = st.lists(st.tuples(HOSTS, TTLS, VALUES), max_size=12)


def query_for(name: str, kind: str = "A", *, payload: int | None = None) -> bytes:
    """Return the query that dnspython makes."""
    return dns.message.make_query(name, kind, payload=payload).to_wire()


def wire_of(name: dns.name.Name) -> bytes:
    """Return a name in lower case and the form of the wire."""
    return b"".join(bytes([len(label)]) + label for label in name.canonicalize().labels)


@given(NAMES, st.integers(0, 65535), st.integers(1, 65279), st.sampled_from([None, 512, 1232, 4096]))
def test_queries_are_read(name: dns.name.Name, ident: int, kind: int, payload: int | None) -> None:
    """Whatever labels the name has, what dnspython has written is read."""
    query = dns.message.make_query(name, dns.rdatatype.RdataType(kind), id=ident, payload=payload)
    found = parse_query(query.to_wire())
    assert (found.id, found.question) == (ident, Question(Name(wire_of(name)), kind))
    assert found.asked == name.to_wire()
    assert (found.has_edns, found.opcode) == (payload is not None, 0)
    assert found.udp_bytes == (512 if payload is None else min(payload, 1232))


@given(HOSTS, RECORDS)
def test_responses_are_read(name: str, records: list[tuple[str, int, tuple[str, str]]]) -> None:
    """Records with compressed names are read as they were meant."""
    response = dns.message.make_response(dns.message.make_query(name, "A"))
    for owner, ttl, (kind, value) in records:
        response.answer.append(dns.rrset.from_text(f"{owner}.", ttl, "IN", kind, value))
    found = parse_response(response.to_wire(max_size=TCP_BYTES))
    expected = [
        Record(
            Name(wire_of(rrset.name)),
            rrset.rdtype,
            CLASS_IN,
            rrset.ttl,
            rrset[0].to_digestable(),
        )
        for rrset in response.answer
    ]
    assert list(found.answers) == expected
    assert (found.rcode, found.is_truncated, found.question.name) == (0, False, parse_name(name))


@given(HOSTS, RECORDS, st.sampled_from([Rcode.NOERROR, Rcode.NXDOMAIN, Rcode.SERVFAIL]), st.booleans())
def test_responses_are_written(
    name: str, records: list[tuple[str, int, tuple[str, str]]], rcode: Rcode, has_edns: bool
) -> None:
    """What was written is read by dnspython, record by record."""
    rrsets = [dns.rrset.from_text(f"{owner}.", ttl, "IN", kind, value) for owner, ttl, (kind, value) in records]
    query = parse_query(query_for(name, payload=1232 if has_edns else None))
    given_records = tuple(
        Record(Name(wire_of(one.name)), one.rdtype, CLASS_IN, one.ttl, one[0].to_wire()) for one in rrsets
    )
    wire, is_whole = render_response(query, rcode, given_records, limit=TCP_BYTES)
    found = dns.message.from_wire(wire, one_rr_per_rrset=True)
    assert is_whole
    assert (found.id, int(found.rcode()), found.edns >= 0) == (query.id, int(rcode), has_edns)
    assert found.flags & dns.flags.RA
    assert [(one.name, one.rdtype, one.ttl, one[0]) for one in found.answer] == [
        (one.name, one.rdtype, one.ttl, one[0]) for one in rrsets
    ]


@given(st.integers(1, 300), st.integers(512, 1232))
def test_what_does_not_fit_is_truncated(count: int, limit: int) -> None:
    """The message is never larger than the limit, and has all records or none."""
    query = parse_query(query_for("example.com", payload=1232))
    records = tuple(
        Record(query.question.name, Type.A, CLASS_IN, 60, number.to_bytes(4, "big")) for number in range(count)
    )
    wire, is_whole = render_response(query, 0, records, limit=limit)
    found = dns.message.from_wire(wire)
    assert len(wire) <= limit
    assert bool(found.flags & dns.flags.TC) is not is_whole
    assert sum(map(len, found.answer)) == (count if is_whole else 0)


@given(st.binary(max_size=600))
def test_any_bytes(data: bytes) -> None:
    """Bytes are a message or malformed; nothing else happens."""
    for parse in (parse_query, parse_response):
        with suppress(Malformed):
            parse(data)
    render_format_error(data)


@given(st.data())
def test_damaged_messages(data: st.DataObject) -> None:
    """So it is with a message in which bytes were changed, or of which the end is missing."""
    response = dns.message.make_response(dns.message.make_query("www.example.com", "A"))
    for owner, kind, value in (
        ("www.example.com.", "CNAME", "b.example.com."),
        ("b.example.com.", "A", "192.0.2.1"),
        ("b.example.com.", "SRV", "1 2 3 c.example.com."),
    ):
        response.answer.append(dns.rrset.from_text(owner, 60, "IN", kind, value))
    wire = bytearray(response.to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        parse_response(bytes(wire[: data.draw(st.integers(0, len(wire)))]))


def test_a_query_to_an_upstream() -> None:
    """Read by dnspython: recursion is desired, and EDNS allows 1232 bytes."""
    found = dns.message.from_wire(render_query(4711, Question(parse_name("www.example.com"), Type.AAAA)))
    assert (found.id, found.payload) == (4711, 1232)
    assert found.flags == dns.flags.RD
    assert str(found.question[0]) == "www.example.com. IN AAAA"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"\0", ""),
        (b"\3www\7example\3com\0", "www.example.com"),
        (b"\x0bwww.example\3com\0", "www\\046example.com"),
        (b"\4a\0b\xff\3com\0", "a\\000b\\255.com"),
        (b"\4_dmz\1*\0", "_dmz.*"),
    ],
)
def test_text_of_names(name: bytes, text: str) -> None:
    """A dot in a label does not look like two labels, and nothing leads to a name of a policy but the name itself."""
    assert to_text(Name(name)) == text


def test_names_of_text() -> None:
    """A name is in lower case; empty and long labels are refused."""
    assert parse_name("WWW.Example.com.") == b"\3www\7example\3com\0"
    assert parse_name(".") == b"\0"
    for text in ("a..b", "." * 3, "x" * 64, ".".join(["x" * 63] * 4)):
        with pytest.raises(Malformed):
            parse_name(text)
    assert [has_dot(parse_name(text)) for text in (".", "db", "a.b")] == [False, False, True]


@pytest.mark.parametrize(
    "question",
    [
        b"\xc0\x0c",  # to itself
        b"\xc0\xff",  # behind the end
        b"\x40a\0",  # a kind of label that there is not
        b"\3ab",  # not whole
        b"\x3f" * 300,  # too long
    ],
)
def test_bad_names(question: bytes) -> None:
    """A pointer leads back, a label is whole, and a name has 255 bytes at most."""
    with pytest.raises(Malformed):
        parse_query(struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + question + struct.pack(">HH", 1, 1))


@pytest.mark.parametrize(("flags", "questions"), [(0x8100, 1), (0x0100, 0), (0x0100, 2)])
def test_no_queries(flags: int, questions: int) -> None:
    """A response, and a query without or with several questions, is none that is answered."""
    body = b"\1a\0" + struct.pack(">HH", 1, 1)
    data = struct.pack(">6H", 7, flags, questions, 0, 0, 0) + body * questions
    with pytest.raises(Malformed):
        parse_query(data)
    answer = render_format_error(data)
    if flags & 0x8000:
        assert answer is None  # otherwise two servers could keep each other busy
    else:
        assert answer is not None
        assert dns.message.from_wire(answer).rcode() == dns.rcode.FORMERR


def test_names_that_point_to_names() -> None:
    """A message of the largest size with a chain of pointers is read in the time of its length."""
    head = struct.pack(">6H", 1, 0x8180, 1, 5000, 0, 0) + b"\1a\0" + struct.pack(">HH", 1, 1)
    data = bytearray(head)
    before = 12
    while len(data) + 12 < 0x3FFF:
        place = len(data)
        data += struct.pack(">HHHIH", 0xC000 | before, 1, 1, 60, 0)
        before = place
    rest = (TCP_BYTES - len(data)) // 12
    data += struct.pack(">HHHIH", 0xC000 | before, 1, 1, 60, 0) * rest
    found = parse_response(bytes(data))
    assert len(found.answers) == 5000
    assert {record.name for record in found.answers} == {b"\1a\0"}
