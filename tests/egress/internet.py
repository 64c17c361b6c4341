# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An internet of one namespace behind the host's uplink, and everything that arrives there."""

import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cni_plugin import run_in_namespace
from tests.egress.packets import IpAddress
from tests.kernel.namespace import Namespace, made_namespace

HOST: Final = Namespace(Path("/proc/self/ns/net"))
_PROTOCOL_ALL: Final = 3
_OUTGOING: Final = 4
_RCVBUFFORCE: Final = 33
_SOL_PACKET: Final = 263
_STATISTICS: Final = 6
_SENTINEL: Final = 9  # the port `discard`
_LIMIT_S: Final = 10.0
_NOT_COUNTED: Final = {*range(130, 138), 143}  # ND and MLD, which the host's own links send


def open_inside(namespace: Namespace, family: int, kind: int) -> socket.socket:
    """Open a socket that belongs to a namespace."""
    return run_in_namespace(str(namespace.path), lambda: socket.socket(family, kind))


class Internet:
    """The namespace outside, and a sniffer at its door."""

    def __init__(self, namespace: Namespace, sniffer: socket.socket) -> None:
        self.namespace = namespace
        self._sniffer = sniffer

    def arrivals(self) -> list[str]:
        """Return what has arrived since the last call, e.g. `17 10.66.0.2 > 198.51.100.9`.

        A packet of the host marks the end, so that nothing is still on its way.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marker:
            marker.sendto(b"end", ("203.0.113.1", _SENTINEL))
        found = []
        deadline = time.monotonic() + _LIMIT_S
        while True:
            assert time.monotonic() < deadline, "the sniffer has not seen the marker"
            if not select.select([self._sniffer], [], [], 1)[0]:
                continue
            line = self._read()
            if line == f"17 203.0.113.2 > 203.0.113.1:{_SENTINEL}":
                break
            if line:
                found.append(line)
        time.sleep(0.02)  # what another processor still has in its queue
        while select.select([self._sniffer], [], [], 0)[0]:
            if line := self._read():
                found.append(line)
        _, lost = struct.unpack("=II", self._sniffer.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        assert lost == 0, f"the sniffer has lost {lost} packets"
        return found

    def _read(self) -> str:
        data, address = self._sniffer.recvfrom(1 << 16)
        return "" if address[2] == _OUTGOING else _describe(data)

    @contextmanager
    def listening(self, address: str, port: int) -> Iterator[socket.socket]:
        """Listen for TCP connections outside."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with open_inside(self.namespace, family, socket.SOCK_STREAM) as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((address, port))
            server.listen()
            server.settimeout(_LIMIT_S)
            yield server


def _describe(data: bytes) -> str:
    """Return a line about a frame, empty for what links send by themselves."""
    kind, packet = struct.unpack_from(">H", data, 12)[0], data[14:]
    source: IpAddress
    destination: IpAddress
    if kind == 0x0806 or len(packet) < 20:
        return ""
    if kind == 0x0800:
        source, destination = IPv4Address(packet[12:16]), IPv4Address(packet[16:20])
        protocol, payload = packet[9], packet[(packet[0] & 15) * 4 :]
    elif kind == 0x86DD:
        source, destination = IPv6Address(packet[8:24]), IPv6Address(packet[24:40])
        protocol, payload = packet[6], packet[40:]
        if protocol == 0 and payload and payload[0] == 58:
            protocol, payload = 58, payload[(payload[1] + 1) * 8 :]
        if protocol == 58 and payload and payload[0] in _NOT_COUNTED:
            return ""
    else:
        return f"type {kind:#x}"
    port = struct.unpack_from(">H", payload, 2)[0] if protocol in {6, 17} and len(payload) >= 4 else None
    return f"{protocol} {source} > {destination}" + (f":{port}" if port is not None else "")


@contextmanager
def internet(*addresses: str) -> Iterator[Internet]:
    """Connect the host to a namespace that has addresses, and routes to the networks of containers."""
    with made_namespace("internet") as outside:
        HOST.ip(f"link add uplink up type veth peer name door netns {outside.path}")
        try:
            HOST.ip("address add 203.0.113.2/24 dev uplink", "address add 2001:db8:f::2/64 dev uplink nodad")
            HOST.ip("route add default via 203.0.113.1", "-6 route add default via 2001:db8:f::1")
            outside.ip("link set lo up", "link set door up")
            outside.ip("address add 203.0.113.1/24 dev door", "address add 2001:db8:f::1/64 dev door nodad")
            outside.ip("route add 10.0.0.0/8 via 203.0.113.2", "-6 route add fd00::/8 via 2001:db8:f::2")
            for address in map(ip_address, addresses):
                outside.ip(f"address add {address} dev lo{' nodad' if address.version == 6 else ''}")
            for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                Path("/proc/sys/net", setting).write_text("1", "ascii")
            with open_inside(outside, socket.AF_PACKET, socket.SOCK_RAW) as sniffer:
                sniffer.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 64 << 20)
                sniffer.bind(("door", _PROTOCOL_ALL))
                yield Internet(outside, sniffer)
        finally:
            HOST.ip("link delete uplink")
