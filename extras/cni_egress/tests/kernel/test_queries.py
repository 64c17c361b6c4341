# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where queries go: to the responder, whatever server a container asks, and nowhere else."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_egress.records import Records
from cni_egress.tables import RESPONDER4, RESPONDER6, RESPONDER_LINK
from tests.egress.guarded import Container, Network
from tests.egress.internet import HOST, Internet, internet, open_inside
from tests.egress.packets import broken, tcp, tcp_syn, udp
from tests.kernel.namespace import Namespace, made_namespace

SERVERS = ("198.51.100.53", "2001:db8:1::53")
ALLOW = ["a.example", "198.51.100.48/28"]


@pytest.fixture(name="outside", scope="module")
def make_outside(private_namespaces: int) -> Iterator[Internet]:
    """The internet of all tests, with a server that must not be asked."""
    assert private_namespaces
    with internet(*SERVERS) as made:
        yield made


@pytest.fixture(name="asker")
def make_asker(outside: Internet, tmp_path: Path) -> Iterator[Container]:
    """A container whose list has a name, and the network of the server."""
    del outside  # requested so that it is there
    network = Network(tmp_path, "agents", 1, ALLOW)
    with Records().responding(), network.container("asker") as made:
        yield made
    network.remove()


@contextmanager
def responder() -> Iterator[Namespace]:
    """A namespace in the place of the responder's."""
    with made_namespace("responder") as inside:
        HOST.ip(f"link add {RESPONDER_LINK} up type veth peer name eth0 netns {inside.path}")
        HOST.ip(f"address add 169.254.53.1/32 dev {RESPONDER_LINK}", f"route add {RESPONDER4}/32 dev {RESPONDER_LINK}")
        HOST.ip(
            f"address add fd53:5353::1/128 dev {RESPONDER_LINK} nodad",
            f"-6 route add {RESPONDER6}/128 dev {RESPONDER_LINK}",
        )
        inside.ip(
            "link set eth0 up", f"address add {RESPONDER4}/32 dev eth0", f"address add {RESPONDER6}/128 dev eth0 nodad"
        )
        inside.ip("route add 169.254.53.1 dev eth0", "route add default via 169.254.53.1 dev eth0 onlink")
        inside.ip("-6 route add fd53:5353::1 dev eth0", "-6 route add default via fd53:5353::1 dev eth0 onlink")
        try:
            yield inside
        finally:
            HOST.ip(f"link delete {RESPONDER_LINK}")


@pytest.mark.parametrize("version", [4, 6])
def test_queries_reach_the_responder(version: int, asker: Container, outside: Internet) -> None:
    """By UDP and TCP, with the container's own address as source; the answer comes from the server that was asked."""
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    address = RESPONDER4 if version == 4 else RESPONDER6
    server_asked = SERVERS[version == 6]
    own = str(asker.of(ip_address(server_asked)))
    outside.arrivals()
    with responder() as inside, open_inside(inside, family, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        server.settimeout(3)
        for asked in (server_asked, ("10.66.1.1", "fd66:1::1")[version == 6], address):
            with open_inside(asker.namespace, family, socket.SOCK_DGRAM) as client:
                client.settimeout(3)
                client.connect((asked, 53))
                client.send(b"query")
                received, source = server.recvfrom(100)
                assert (received, source[0]) == (b"query", own)
                server.sendto(b"answer", source)
                assert client.recv(100) == b"answer"
        with open_inside(inside, family, socket.SOCK_STREAM) as listener:
            listener.bind((address, 53))
            listener.listen()
            listener.settimeout(3)
            assert asker.connect(server_asked, 53) == "open"
            accepted, source = listener.accept()
            accepted.close()
            assert source[0] == own
    assert outside.arrivals() == []


def test_no_query_leaves_without_the_responder(asker: Container, outside: Internet) -> None:
    """Neither if its link is missing, nor to a server whose network is allowed."""
    outside.arrivals()
    for server in map(ip_address, SERVERS):
        source = asker.of(server)
        asker.emit(udp(source, server, 53), tcp_syn(source, server, 53))
    assert outside.arrivals() == []
    four = ip_address(SERVERS[0])
    asker.emit(udp(asker.four, four, 5353))
    assert outside.arrivals() == [f"17 {asker.four} > {four}:5353"]


def test_queries_that_conntrack_finds_invalid(asker: Container, outside: Internet) -> None:
    """They would not be redirected: a wrong checksum, and packets of connections that do not exist."""
    outside.arrivals()
    for server in map(ip_address, SERVERS):
        source = asker.of(server)
        asker.emit(broken(udp(source, server, 53)))
        asker.emit(*(tcp(source, server, 53, flags=flags) for flags in (0, 0x03, 0x04, 0x06, 0x11, 0x12, 0x14, 0x29)))
    assert outside.arrivals() == []
    four = ip_address(SERVERS[0])
    asker.emit(broken(udp(asker.four, four, 5353)))
    assert outside.arrivals() == [f"17 {asker.four} > {four}:5353"]


def test_a_list_of_addresses_asks_whom_it_allows(outside: Internet, tmp_path: Path) -> None:
    """Without names there is no responder, and a server is an address like any other."""
    network = Network(tmp_path, "plain", 2, ALLOW[1:])
    with network.container("one") as one:
        four, six = (ip_address(server) for server in SERVERS)
        outside.arrivals()
        one.emit(udp(one.six, six, 53), udp(one.four, four, 53))
        assert outside.arrivals() == [f"17 {one.four} > {four}:53"]
    network.remove()


def test_the_link_of_the_responder_is_for_guarded_containers(asker: Container, outside: Internet) -> None:
    """Others cannot use it, in neither direction, and not even a guarded container by another port."""
    with responder() as inside:
        HOST.ip("route add 10.9.9.0/24 via 203.0.113.1")
        outside.namespace.ip("address add 10.9.9.9/32 dev lo", "route add 169.254.53.53/32 via 203.0.113.2")
        with open_inside(inside, socket.AF_PACKET, socket.SOCK_RAW) as sniffer:
            sniffer.bind(("eth0", 0x0800))
            sniffer.settimeout(0.3)
            with open_inside(outside.namespace, socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind(("10.9.9.9", 0))
                stranger.sendto(b"query", (RESPONDER4, 53))
            asker.emit(udp(asker.four, ip_address(RESPONDER4), 54))
            with pytest.raises(TimeoutError):
                sniffer.recv(2000)
            outside.arrivals()
            with open_inside(inside, socket.AF_INET, socket.SOCK_DGRAM) as prisoner:
                prisoner.bind((RESPONDER4, 0))
                prisoner.sendto(b"out", (SERVERS[0], 53))
            assert outside.arrivals() == []
            asker.emit(udp(asker.four, ip_address(SERVERS[0]), 53))
            assert sniffer.recv(2000)
        HOST.ip("route delete 10.9.9.0/24")
        outside.namespace.ip("address delete 10.9.9.9/32 dev lo", "route delete 169.254.53.53/32")
