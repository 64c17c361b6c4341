# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Receives from the kernel the packets that the tables have refused (NFLOG, linux/netfilter/nfnetlink_log.h)."""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from cni_egress.netlink import NETFILTER, attribute, attributes
from cni_egress.records import IpAddress

__all__ = ["Nflog", "Packet", "parse_packet", "parse_packets"]

_SUBSYSTEM: Final = 4 << 8  # NFNL_SUBSYS_ULOG
_PACKET, _CONFIG = _SUBSYSTEM, _SUBSYSTEM | 1
_NLMSG_ERROR: Final = 2
_REQUEST, _ACK = 1, 4
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_FAMILY: Final = struct.Struct(">BBH")  # nfgenmsg
_ERRNO: Final = struct.Struct("=i")
_PAYLOAD, _PREFIX = 9, 10
_BIND: Final = (1, b"\1")
_COPY: Final = (2, struct.pack(">IBB", 160, 2, 0))  # the headers of each packet
_DELAY: Final = (4, struct.pack(">I", 10))  # hundredths of a second that the kernel collects packets
_BUFFER_BYTES: Final = 1 << 20
_RECEIVE_BYTES: Final = 1 << 17

_V4_BYTES, _V6_BYTES = 20, 40
_TCP, _UDP, _ICMP, _ICMPV6 = 6, 17, 1, 58
_PROTOCOLS: Final = {_TCP: "tcp", _UDP: "udp", _ICMP: "icmp", _ICMPV6: "icmpv6"}
_PORTED: Final = frozenset({_TCP, _UDP})
_EXTENSIONS: Final = frozenset({0, 43, 60})
"""Hop-by-hop, routing and destination headers begin with the protocol of the next header and their own length."""
_FRAGMENT: Final = 44
_FRAGMENT_BYTES: Final = 8
_OFFSET_V4: Final = 0x1FFF
_OFFSET_V6: Final = 0xFFF8
_VERSION_4, _VERSION_6 = 4, 6
_ARP: Final = bytes.fromhex("000108000604")
"""How an ARP packet about IPv4 addresses on Ethernet begins (RFC 826)."""
_ARP_BYTES: Final = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """A packet that was refused.

    Attributes:
        prefix: The text of the rule that has logged it.
        source: Who sent it.
        destination: To whom.
        protocol: `tcp`, `udp`, `icmp`, `icmpv6`, `arp`, or the number of another protocol.
        port: Its destination port; None if it has none, or is the rest of a fragmented packet.
    """

    prefix: str
    source: IpAddress
    destination: IpAddress
    protocol: str
    port: int | None


class Nflog:
    """The packets of one group of NFLOG.

    Args:
        group: The group that the tables log to.

    Raises:
        OSError: The kernel has no NFLOG, or another process has the group.
    """

    def __init__(self, group: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            for kind, value in (_BIND, _COPY, _DELAY):
                self._configure(group, kind, value)
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for the event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """Give the group back."""
        self._socket.close()

    def receive(self) -> tuple[Packet, ...]:
        """Return the packets that have come, without waiting.

        Raises:
            OSError: ENOBUFS if the kernel had to drop some.
        """
        try:
            return tuple(parse_packets(self._socket.recv(_RECEIVE_BYTES)))
        except (BlockingIOError, InterruptedError):
            return ()

    def _configure(self, group: int, kind: int, value: bytes) -> None:
        body = _FAMILY.pack(0, 0, group) + attribute(kind, value)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _CONFIG, _REQUEST | _ACK, kind, 0) + body)
        while True:  # packets may come before the acknowledgement
            reply = self._socket.recv(_RECEIVE_BYTES)
            _, answer, _, sequence, _ = _HEADER.unpack_from(reply)
            if (answer, sequence) == (_NLMSG_ERROR, kind):
                (negative,) = _ERRNO.unpack_from(reply, _HEADER.size)
                if negative:
                    raise OSError(-negative, f"NFLOG group {group}: {os.strerror(-negative)}")
                return


def parse_packets(data: bytes) -> Iterator[Packet]:
    """Yield the packets in what the kernel has sent; one that cannot be read is left out."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        if kind == _PACKET:
            found = dict(attributes(data[at + _HEADER.size + _FAMILY.size : at + length]))
            prefix = found.get(_PREFIX, b"").rstrip(b"\0").decode("ascii", "replace")
            packet = parse_packet(found.get(_PAYLOAD, b""), prefix)
            if packet is not None:
                yield packet
        at += (length + 3) & ~3


def parse_packet(data: bytes, prefix: str = "") -> Packet | None:
    """Read the headers of an IP packet, or the addresses of ARP; None for other bytes: a container can send any."""
    if len(data) < _V4_BYTES:
        return None
    if data.startswith(_ARP) and len(data) >= _ARP_BYTES:
        sender, target = ip_address(data[14:18]), ip_address(data[24:28])
        return Packet(prefix=prefix, source=sender, destination=target, protocol="arp", port=None)
    if data[0] >> 4 == _VERSION_6:
        if len(data) < _V6_BYTES:
            return None
        source, destination, (number, at) = data[8:24], data[24:40], _find_transport(data)
    elif data[0] >> 4 != _VERSION_4:
        return None
    else:
        source, destination, number = data[12:16], data[16:20], data[9]
        at = (data[0] & 15) * 4 if not int.from_bytes(data[6:8], "big") & _OFFSET_V4 else len(data)
    has_port = number in _PORTED and at + 4 <= len(data)
    return Packet(
        prefix=prefix,
        source=ip_address(source),
        destination=ip_address(destination),
        protocol=_PROTOCOLS.get(number, str(number)),
        port=int.from_bytes(data[at + 2 : at + 4], "big") if has_port else None,
    )


def _find_transport(data: bytes) -> tuple[int, int]:
    """Return the protocol behind the extension headers of an IPv6 packet, and where it begins."""
    number, at = data[6], _V6_BYTES
    while at + _FRAGMENT_BYTES <= len(data):
        if number in _EXTENSIONS:
            number, at = data[at], at + (data[at + 1] + 1) * 8
        elif number == _FRAGMENT:
            if int.from_bytes(data[at + 2 : at + 4], "big") & _OFFSET_V6:
                return data[at], len(data)
            number, at = data[at], at + _FRAGMENT_BYTES
        else:
            break
    return number, at
