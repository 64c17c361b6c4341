# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is logged by NFLOG: why, from where and to where, and not more than is useful."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_egress.netlink import NETFILTER, attribute, attributes
from cni_egress.records import Records
from cni_egress.tables import LOG_GROUP
from tests.egress.guarded import Container, Network
from tests.egress.internet import Internet, internet
from tests.egress.packets import frame, icmp_echo, udp

CLOSED, OTHER, SIX = "198.51.100.9", "198.51.100.10", "2001:db8:1::9"


class Log:
    """A listener of NFLOG.

    Args:
        netlink: Its socket.
    """

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink

    def configure(self, family: int, attributes_: bytes) -> None:
        """Send a message about the group."""
        body = struct.pack(">BBH", family, 0, LOG_GROUP) + attributes_
        self._netlink.send(struct.pack("=LHHLL", 16 + len(body), 4 << 8 | 1, 1 | 4, 1, 0) + body)
        (error,) = struct.unpack_from("=i", self._netlink.recv(4096), 16)
        assert error == 0

    def lines(self) -> list[str]:
        """Return the prefixes that have arrived."""
        found: list[str] = []
        while True:
            try:
                data = self._netlink.recv(1 << 16)
            except TimeoutError:
                return found
            while len(data) >= 16:
                length, kind = struct.unpack_from("=LH", data)
                fields = dict(attributes(data[20:length])) if kind == 4 << 8 else {}
                found += [fields[10].rstrip(b"\0").decode()] if 10 in fields else []
                data = data[(length + 3) & ~3 :]


@contextmanager
def listening() -> Iterator[Log]:
    """Listen to the group of the plugin."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER) as netlink:
        netlink.settimeout(1.5)  # the kernel sends what it has collected after a second
        netlink.bind((0, 0))
        log = Log(netlink)
        log.configure(0, attribute(1, b"\x01"))
        log.configure(0, attribute(2, struct.pack(">IBB", 128, 2, 0)) + attribute(4, struct.pack(">I", 1)))
        yield log


@pytest.fixture(name="outside", scope="module")
def make_outside(private_namespaces: int) -> Iterator[Internet]:
    """The internet of all tests."""
    assert private_namespaces
    with internet(CLOSED, OTHER, SIX) as made:
        yield made


@pytest.mark.usefixtures("outside")
def test_refused_packets(tmp_path: Path) -> None:
    """Each destination is logged at most twice a minute, for each container by itself."""
    network = Network(tmp_path, "agents", 1, ["192.0.2.0/24"])
    with network.container("one") as one, network.container("two") as two, listening() as log:
        one.emit(*(udp(one.four, ip_address(CLOSED), 443) for _ in range(20)))
        assert log.lines() == ["refused"] * 2
        one.emit(udp(one.four, ip_address(OTHER), 443), udp(one.four, ip_address(CLOSED), 444))
        one.emit(udp(one.six, ip_address(SIX), 443), icmp_echo(one.four, ip_address(CLOSED)))
        two.emit(udp(two.four, ip_address(CLOSED), 443))
        assert log.lines() == ["refused"] * 5
        one.emit(udp(one.four, ip_address("192.0.2.7"), 443))
        assert log.lines() == []
        _spoof(one, two)
        assert log.lines() == ["spoofed"]
    network.remove()


def _spoof(one: Container, two: Container) -> None:
    one.send(frame(udp(two.four, ip_address("192.0.2.7"), 443), one.mac, one.gateway_mac()))


def test_audited_packets(outside: Internet, tmp_path: Path) -> None:
    """What the list does not have is logged, and passes; what it has is not logged."""
    network = Network(tmp_path, "probe", 2, ["198.51.100.10"], settings={"audit": True})
    with Records().responding(), network.container("one") as one, listening() as log:
        outside.arrivals()
        one.emit(*(udp(one.four, ip_address(to), 443) for to in (CLOSED, OTHER)))
        assert log.lines() == ["audit"]
        assert len(outside.arrivals()) == 2
    network.remove()
