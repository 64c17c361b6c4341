# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Packets that were refused, as the kernel passes them on."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_egress.nflog import Packet, parse_packet, parse_packets

PORTS = struct.pack(">HH", 40000, 22)
SOURCE, DESTINATION = ip_address("10.66.0.5"), ip_address("192.0.2.7")
SOURCE6, DESTINATION6 = ip_address("fd00::5"), ip_address("2001:db8::7")


def v4(protocol: int, rest: bytes, *, options: bytes = b"", offset: int = 0) -> bytes:
    """Return an IPv4 packet."""
    head = struct.pack(">BBHHHBBH", 0x45 + len(options) // 4, 0, 0, 0, offset, 64, protocol, 0)
    return head + SOURCE.packed + DESTINATION.packed + options + rest


def v6(protocol: int, rest: bytes) -> bytes:
    """Return an IPv6 packet."""
    return struct.pack(">IHBB", 6 << 28, len(rest), protocol, 64) + SOURCE6.packed + DESTINATION6.packed + rest


def arp() -> bytes:
    """Return an ARP request."""
    head = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1)
    return head + bytes(6) + SOURCE.packed + bytes(6) + DESTINATION.packed


@pytest.mark.parametrize(
    ("data", "protocol", "port"),
    [
        (v4(6, PORTS), "tcp", 22),
        (v4(17, PORTS, options=b"\1" * 8), "udp", 22),
        (v4(17, PORTS, offset=0x2000), "udp", 22),
        (v4(17, PORTS, offset=185), "udp", None),
        (v4(6, b"\0\x16"), "tcp", None),
        (v4(1, b"\x08\0\0\0"), "icmp", None),
        (v4(47, PORTS), "47", None),
        (v6(6, PORTS), "tcp", 22),
        (v6(58, b"\x80\0\0\0"), "icmpv6", None),
        (v6(0, b"\x11\0" + b"\1\4\0\0\0\0" + PORTS), "udp", 22),
        (v6(60, b"\x2b\1" + bytes(14) + b"\6\0" + bytes(6) + PORTS), "tcp", 22),
        (v6(44, b"\6\0\0\0\0\0\0\1" + PORTS), "tcp", 22),
        (v6(44, b"\6\0\0\x08\0\0\0\1" + PORTS), "tcp", None),
        (arp(), "arp", None),
    ],
)
def test_headers(data: bytes, protocol: str, port: int | None) -> None:
    """The port is found behind options and extension headers, but not in the rest of a fragmented packet."""
    found = parse_packet(data, "refused")
    is_v4 = data[0] >> 4 != 6
    source, destination = (SOURCE, DESTINATION) if is_v4 else (SOURCE6, DESTINATION6)
    expected = Packet(prefix="refused", source=source, destination=destination, protocol=protocol, port=port)
    assert found == expected


def test_no_packet() -> None:
    """What is shorter than a header is none."""
    assert parse_packet(b"") is None
    assert parse_packet(v4(6, b"")[:19]) is None
    assert parse_packet(v6(6, b"")[:39]) is None
    assert parse_packet(arp()[:27]) is None
    assert parse_packet(bytes(40)) is None


def message(payload: bytes, prefix: bytes) -> bytes:
    """Return the kernel's message about a packet."""
    body = bytes(4)
    for kind, value in ((1, b"\x08\0\0\0"), (10, prefix + b"\0"), (9, payload)):
        body += struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), 4 << 8, 0, 0, 0) + body


def test_several_packets_at_once() -> None:
    """The kernel collects packets; one that cannot be read is left out."""
    data = message(v4(6, PORTS), b"refused") + message(b"?", b"refused") + message(v6(17, PORTS), b"unknown")
    assert [(one.prefix, one.protocol) for one in parse_packets(data)] == [("refused", "tcp"), ("unknown", "udp")]


@given(st.binary(max_size=120))
def test_any_packet(data: bytes) -> None:
    """A container can send any bytes: they are a packet or none."""
    parse_packet(data)
    tuple(parse_packets(data))
    for head in (v4(6, b""), v6(0, b""), v6(44, b"")):
        assert parse_packet(head + data) is not None
