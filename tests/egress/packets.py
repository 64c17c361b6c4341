# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Packets and frames as a container without good intentions makes them, byte by byte."""

import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

IpAddress = IPv4Address | IPv6Address

TCP: Final = 6
UDP: Final = 17


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of IP.

    Attributes:
        source: Its source.
        destination: Its destination.
        protocol: The protocol of its payload.
        payload: What it carries.
        extension: IPv4 options, or IPv6 extension headers, the last of which names the protocol itself.
        first: The first header of IPv6 if there is an extension.
        hops: The hop limit.
        fragment: The field of fragments of IPv4.
    """

    source: IpAddress
    destination: IpAddress
    protocol: int
    payload: bytes
    extension: bytes = b""
    first: int = 0
    hops: int = 64
    fragment: int = 0

    def __bytes__(self) -> bytes:
        body = self.extension + self.payload
        if isinstance(self.source, IPv6Address):
            following = self.first if self.extension else self.protocol
            head = struct.pack(">IHBB", 6 << 28, len(body), following, self.hops)
            return head + self.source.packed + self.destination.packed + body
        size = 20 + len(self.extension)
        head = struct.pack(
            ">BBHHHBBH", 0x40 | size // 4, 0, 20 + len(body), 7, self.fragment, self.hops, self.protocol, 0
        )
        head += self.source.packed + self.destination.packed + self.extension
        return head[:10] + struct.pack(">H", _checksum(head)) + head[12:] + self.payload

    def to(self, destination: IpAddress) -> "Packet":
        """Return the same packet to another destination; checksums of the payload are not changed."""
        return replace(self, destination=destination)


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def _with_checksum(source: IpAddress, destination: IpAddress, protocol: int, payload: bytes, at: int) -> bytes:
    pseudo = source.packed + destination.packed + struct.pack(">II", len(payload), protocol)
    return payload[:at] + struct.pack(">H", _checksum(pseudo + payload)) + payload[at + 2 :]


def udp(source: IpAddress, destination: IpAddress, port: int, data: bytes = b"out") -> Packet:
    """A datagram."""
    payload = struct.pack(">HHHH", 40000, port, 8 + len(data), 0) + data
    return Packet(source, destination, UDP, _with_checksum(source, destination, UDP, payload, 6))


def tcp_syn(source: IpAddress, destination: IpAddress, port: int) -> Packet:
    """The first packet of a connection."""
    return tcp(source, destination, port, flags=2)


def tcp(source: IpAddress, destination: IpAddress, port: int, *, flags: int) -> Packet:
    """A packet of a connection that does not exist, or its first."""
    payload = struct.pack(">HHIIBBHHH", 40001, port, 7, 0, 5 << 4, flags, 1024, 0, 0)
    return Packet(source, destination, TCP, _with_checksum(source, destination, TCP, payload, 16))


def broken(packet: Packet) -> Packet:
    """A datagram with a wrong checksum."""
    return replace(packet, payload=packet.payload[:6] + b"\x12\x34" + packet.payload[8:])


def port_unreachable(source: IPv4Address, destination: IPv4Address, refused: Packet) -> Packet:
    """The error of ICMP about a packet."""
    payload = struct.pack(">BBHI", 3, 3, 0, 0) + bytes(refused)
    return Packet(source, destination, 1, payload[:2] + struct.pack(">H", _checksum(payload)) + payload[4:])


def icmp_echo(source: IpAddress, destination: IpAddress) -> Packet:
    """An echo request, of either family."""
    if isinstance(source, IPv6Address):
        payload = struct.pack(">BBHHH", 128, 0, 0, 7, 1)
        return Packet(source, destination, 58, _with_checksum(source, destination, 58, payload, 2))
    payload = struct.pack(">BBHHH", 8, 0, 0, 7, 1)
    return Packet(source, destination, 1, payload[:2] + struct.pack(">H", _checksum(payload)) + payload[4:])


def raw(source: IpAddress, destination: IpAddress, protocol: int) -> Packet:
    """A packet of any other protocol."""
    inner = bytes(udp(IPv4Address("10.0.0.1"), IPv4Address("198.51.100.99"), 443))
    return Packet(source, destination, protocol, b"\0\0\x08\0" + inner if protocol == 47 else inner)


def fragments(packet: Packet) -> tuple[Packet, Packet]:
    """A packet in two pieces, the first of which has eight bytes of payload."""
    if isinstance(packet.source, IPv6Address):
        heads = [struct.pack(">BBHI", packet.protocol, 0, field, 9) for field in (1, 8)]
        pieces = (packet.payload[:8], packet.payload[8:])
        one, two = (
            replace(packet, extension=head, first=44, payload=part) for head, part in zip(heads, pieces, strict=True)
        )
        return one, two
    return replace(packet, payload=packet.payload[:8], fragment=0x2000), replace(
        packet, payload=packet.payload[8:], fragment=1
    )


def neighbor_advertisement(source: IPv6Address, destination: IPv6Address, target: IPv6Address, mac: str) -> Packet:
    """The claim that an address is at a hardware address."""
    option = b"\x02\x01" + bytes.fromhex(mac.replace(":", ""))
    payload = struct.pack(">BBHI", 136, 0, 0, 0x60000000) + target.packed + option
    return Packet(source, destination, 58, _with_checksum(source, destination, 58, payload, 2), hops=255)


def frame(packet: Packet | bytes, source: str, destination: str, *, kind: int = 0, vlan: int | None = None) -> bytes:
    """A frame of Ethernet with a packet, or with bytes of the type `kind`."""
    if isinstance(packet, Packet):
        kind = 0x86DD if isinstance(packet.source, IPv6Address) else 0x0800
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    macs = bytes.fromhex((destination + source).replace(":", ""))
    return macs + tag + struct.pack(">H", kind) + bytes(packet)
