# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container with all rights in its namespace tries to get out: nothing of it arrives at an internet of namespaces.

Each packet is also sent where it is allowed, and arrives there: so a test fails if it has sent nothing.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

from tests.egress.guarded import Container, Network
from tests.egress.internet import HOST, Internet, internet, open_inside
from tests.egress.packets import (
    IpAddress,
    Packet,
    fragments,
    frame,
    icmp_echo,
    neighbor_advertisement,
    port_unreachable,
    raw,
    tcp_syn,
    udp,
)
from tests.kernel.namespace import made_namespace

WEB = ("198.51.100.1", "2001:db8:1::1")
"""TCP 443 is allowed."""
OPEN = ("198.51.100.17", "2001:db8:2::17")
"""Every protocol is allowed."""
CLOSED = ("198.51.100.9", "2001:db8:1::9")
"""Nothing is allowed."""
METADATA = "169.254.169.254"
ALLOW = ("198.51.100.1:443/tcp", "[2001:db8:1::1]:443/tcp", "198.51.100.16/28", "2001:db8:2::/64", "host:8080/tcp")
ROUTER_ALERT = b"\x94\x04\x00\x00"
RECORD_ROUTE = b"\x07\x07\x04\x00\x00\x00\x00\x00"
UDP_BEHIND = bytes((17, 0, 1, 4, 0, 0, 0, 0))
"""An IPv6 extension header with nothing but padding, before a datagram."""


@pytest.fixture(name="outside", scope="module")
def make_outside(private_namespaces: int) -> Iterator[Internet]:
    """The internet of all tests."""
    assert private_namespaces
    with internet(*WEB, *OPEN, *CLOSED, METADATA) as made:
        yield made


@pytest.fixture(name="network", scope="module")
def make_network(outside: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A guarded network."""
    del outside  # requested so that it is there
    made = Network(tmp_path_factory.mktemp("network"), "agents", 1, ALLOW)
    yield made
    made.remove()


@pytest.fixture(name="pair", scope="module")
def make_pair(network: Network) -> Iterator[tuple[Container, Container]]:
    """A container that tries to get out, and its neighbor."""
    with ExitStack() as stack:
        yield stack.enter_context(network.container("prisoner")), stack.enter_context(network.container("neighbor"))


@pytest.fixture(name="prisoner", scope="module")
def make_prisoner(pair: tuple[Container, Container]) -> Container:
    """The container that tries to get out."""
    return pair[0]


@pytest.fixture(name="neighbor", scope="module")
def make_neighbor(pair: tuple[Container, Container]) -> Container:
    """Its neighbor."""
    return pair[1]


def ext(packet: Packet, extension: bytes, first: int = 0) -> Packet:
    """The packet with options or extension headers."""
    return Packet(packet.source, packet.destination, packet.protocol, packet.payload, extension, first, packet.hops)


def routed(packet: Packet) -> Packet:
    """The packet with a routing header, of type 0, which has one further address."""
    assert isinstance(packet.destination, IPv6Address)
    head = struct.pack(">BBBBI", packet.protocol, 2, 0, 0, 0) + packet.destination.packed
    return ext(packet, head, 43)


PACKETS: dict[str, Callable[[IpAddress, IpAddress], list[Packet]]] = {
    "a connection": lambda source, to: [tcp_syn(source, to, 443)],
    "a connection to SSH": lambda source, to: [tcp_syn(source, to, 22)],
    "a datagram": lambda source, to: [udp(source, to, 443)],
    "a query by UDP": lambda source, to: [udp(source, to, 53)],
    "a query by TCP": lambda source, to: [tcp_syn(source, to, 53)],
    "DNS over TLS": lambda source, to: [tcp_syn(source, to, 853)],
    "an echo request": lambda source, to: [icmp_echo(source, to)],
    "GRE": lambda source, to: [raw(source, to, 47)],
    "IPIP": lambda source, to: [raw(source, to, 4)],
    "6in4": lambda source, to: [raw(source, to, 41)],
    "ESP": lambda source, to: [raw(source, to, 50)],
    "SCTP": lambda source, to: [raw(source, to, 132)],
    "a protocol without a name": lambda source, to: [raw(source, to, 253)],
    "fragments": lambda source, to: list(fragments(udp(source, to, 443))),
    "fragments in reverse": lambda source, to: list(reversed(fragments(udp(source, to, 443, b"out" * 9)))),
}
PACKETS4: dict[str, Callable[[IpAddress, IpAddress], list[Packet]]] = {
    "router alert": lambda source, to: [ext(udp(source, to, 443), ROUTER_ALERT)],
    "record route": lambda source, to: [ext(udp(source, to, 443), RECORD_ROUTE)],
}
PACKETS6: dict[str, Callable[[IpAddress, IpAddress], list[Packet]]] = {
    "hop by hop": lambda source, to: [ext(udp(source, to, 443), UDP_BEHIND, 0)],
    "destination options": lambda source, to: [ext(udp(source, to, 443), UDP_BEHIND, 60)],
    "two headers": lambda source, to: [ext(udp(source, to, 443), bytes((60,)) + UDP_BEHIND[1:] + UDP_BEHIND, 60)],
    "a routing header": lambda source, to: [routed(udp(source, to, 443))],
    "neighbor discovery": lambda source, to: [
        neighbor_advertisement(IPv6Address(source), IPv6Address(to), IPv6Address(source), "c2:11:22:33:44:55")
    ],
}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", [*PACKETS, *PACKETS4, *PACKETS6])
def test_a_packet_to_what_is_not_allowed(name: str, version: int, prisoner: Container, outside: Internet) -> None:
    """Whatever it is, it does not arrive; the same packet to an allowed network does."""
    made = {**PACKETS, **(PACKETS4 if version == 4 else PACKETS6)}.get(name)
    if made is None:
        return
    closed, opened = (ip_address(pair[version == 6]) for pair in (CLOSED, OPEN))
    source = prisoner.of(closed)
    outside.arrivals()
    prisoner.emit(*made(source, closed))
    assert outside.arrivals() == []
    if name == "neighbor discovery":  # a router drops it in any case
        return
    prisoner.emit(*made(source, opened))
    assert any(f"{source} > {opened}" in line for line in outside.arrivals())


@pytest.mark.parametrize("address", [0, 1])
def test_only_the_port_that_is_allowed(address: int, prisoner: Container, outside: Internet) -> None:
    """443 by TCP is, not 443 by UDP, not 80, and not an echo request."""
    to = ip_address(WEB[address])
    source = prisoner.of(to)
    outside.arrivals()
    prisoner.emit(tcp_syn(source, to, 80), udp(source, to, 443), icmp_echo(source, to), raw(source, to, 47))
    assert outside.arrivals() == []
    prisoner.emit(tcp_syn(source, to, 443))
    assert outside.arrivals() == [f"6 {source} > {to}:443"]


def send_until_refused(client: socket.socket) -> None:
    """Send datagrams, one a second: the kernel sends a container no more errors, and others may have been before."""
    for _ in range(8):
        client.send(b"out")
        with suppress(TimeoutError):
            client.recv(100)


@pytest.mark.parametrize("address", [0, 1])
def test_a_refusal_is_immediate(address: int, prisoner: Container, outside: Internet) -> None:
    """A program need not wait for a time-out: TCP is reset, and UDP gets an error of ICMP."""
    outside.arrivals()
    assert prisoner.connect(CLOSED[address], 443) == "Connection refused"
    family = (socket.AF_INET, socket.AF_INET6)[address]
    with open_inside(prisoner.namespace, family, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        client.connect((CLOSED[address], 443))
        with pytest.raises(OSError, match=r"No route to host|Permission denied"):
            send_until_refused(client)
    assert outside.arrivals() == []
    with outside.listening(WEB[address], 443):
        assert prisoner.connect(WEB[address], 443) == "open"


def test_errors_about_connections_of_the_host(prisoner: Container, outside: Internet) -> None:
    """Conntrack relates such an error to a connection, but it is not the container's."""
    closed, opened = IPv4Address(CLOSED[0]), IPv4Address(OPEN[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("203.0.113.2", 40000))
        client.connect((CLOSED[0], 7779))
        client.send(b"of the host")
    answer = Packet(closed, IPv4Address("203.0.113.2"), 17, struct.pack(">HHHH", 7779, 40000, 8, 0))
    outside.arrivals()
    prisoner.emit(port_unreachable(prisoner.four, closed, answer))
    assert outside.arrivals() == []
    prisoner.emit(icmp_echo(prisoner.four, opened))
    assert outside.arrivals() == [f"1 {prisoner.four} > {opened}"]


@pytest.mark.parametrize("version", [4, 6])
def test_a_false_source(version: int, prisoner: Container, neighbor: Container, outside: Internet) -> None:
    """A neighbor's address, a neighbor's hardware address, both, a stranger's, or none at all: nothing leaves."""
    opened = ip_address(OPEN[version == 6])
    own, other = prisoner.of(opened), neighbor.of(opened)
    stranger = ip_address(("10.66.1.200", "fd66:1::200")[version == 6])
    public = ip_address(("192.0.2.7", "2001:db8:7::7")[version == 6])
    none = ip_address(("0.0.0.0", "::")[version == 6])
    gateway = prisoner.gateway_mac()
    outside.arrivals()
    for source in (other, stranger, public, none, opened):
        for mac in (prisoner.mac, neighbor.mac, "02:00:00:00:00:07"):
            prisoner.send(frame(udp(source, opened, 443), mac, gateway))
    for mac in (neighbor.mac, "02:00:00:00:00:07", gateway, "ff:ff:ff:ff:ff:ff"):
        prisoner.send(frame(udp(own, opened, 443), mac, gateway))
    assert outside.arrivals() == []
    prisoner.send(frame(udp(own, opened, 443), prisoner.mac, gateway))
    assert outside.arrivals() == [f"17 {own} > {opened}:443"]


def counted() -> int:
    """How many frames were refused because of their form or their source."""
    listed = HOST.run("nft list counter bridge cni-egress spoofed").decode().split()
    return int(listed[listed.index("packets") + 1])


def test_frames_of_another_form(prisoner: Container, outside: Internet) -> None:
    """With a VLAN tag, two of them, to all, to a group, or of an unknown type: nothing leaves."""
    closed, opened = ip_address(CLOSED[0]), ip_address(OPEN[0])
    gateway, packet = prisoner.gateway_mac(), udp(prisoner.four, opened, 443)
    double = struct.pack(">HH", 6, 0x8100) + struct.pack(">HH", 5, 0x0800) + bytes(packet)
    spoofed = counted()
    outside.arrivals()
    for tag in (0, 5):
        prisoner.send(frame(packet, prisoner.mac, gateway, vlan=tag))
    assert counted() == spoofed + 2  # also where the host has a link for that VLAN
    prisoner.send(frame(double, prisoner.mac, gateway, kind=0x88A8))
    for target in ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:fb", "33:33:00:00:00:01", "01:80:c2:00:00:0e"):
        prisoner.send(frame(udp(prisoner.four, closed, 443), prisoner.mac, target))
    for kind in (0x8847, 0x8863, 0x88CC, 0x86DD, 0x0000):
        prisoner.send(frame(bytes(packet), prisoner.mac, gateway, kind=kind))
    assert outside.arrivals() == []
    prisoner.send(frame(packet, prisoner.mac, gateway))
    assert outside.arrivals() == [f"17 {prisoner.four} > {opened}:443"]


def test_rules_inside_do_not_matter(prisoner: Container, outside: Internet) -> None:
    """Rights over the own namespace, further addresses and routes do not help; a false hardware address harms."""
    prisoner.namespace.run("nft flush ruleset")
    prisoner.namespace.ip("address add 10.66.1.77/24 dev eth0", "address add 198.51.100.200/32 dev eth0")
    try:
        outside.arrivals()
        for source in ("10.66.1.77", "198.51.100.200"):
            with open_inside(prisoner.namespace, socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.bind((source, 0))
                for target in (CLOSED[0], OPEN[0]):
                    client.sendto(b"out", (target, 443))
        assert outside.arrivals() == []
    finally:
        prisoner.namespace.ip("address del 10.66.1.77/24 dev eth0", "address del 198.51.100.200/32 dev eth0")


def test_neighbors_reach_each_other(prisoner: Container, neighbor: Container) -> None:
    """Inside a network nothing is refused."""
    for address, family in ((neighbor.four, socket.AF_INET), (neighbor.six, socket.AF_INET6)):
        with open_inside(neighbor.namespace, family, socket.SOCK_STREAM) as server:
            server.bind((str(address), 7777))
            server.listen()
            assert prisoner.connect(str(address), 7777) == "open"


def test_neighbors_cannot_be_poisoned(prisoner: Container, neighbor: Container) -> None:
    """Claims to have the address of the gateway or of a neighbor, by ARP, ND or routers, are not forwarded."""
    gateway4, gateway6 = (ip_address(one) for one in ("10.66.1.1", "fd66:1::1"))
    assert isinstance(gateway4, IPv4Address)
    assert isinstance(gateway6, IPv6Address)
    for one in (prisoner, neighbor):  # each knows the gateway and the other one
        for address in (gateway4, gateway6, neighbor.four, neighbor.six, prisoner.four, prisoner.six):
            one.namespace.run(f"busybox ping -c 1 -W 2 {address}" if address not in {gateway4, gateway6} else "true")
    with open_inside(neighbor.namespace, socket.AF_PACKET, socket.SOCK_RAW) as sniffer:
        sniffer.bind(("eth0", 3))
        sniffer.settimeout(0.3)
        head = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + bytes.fromhex(prisoner.mac.replace(":", ""))
        victim = bytes.fromhex(neighbor.mac.replace(":", "")) + neighbor.four.packed
        for claimed in (gateway4, IPv4Address("10.66.1.99"), neighbor.four):
            for target in (neighbor.mac, "ff:ff:ff:ff:ff:ff"):
                prisoner.send(frame(head + claimed.packed + victim, prisoner.mac, target, kind=0x0806))
        for source in (prisoner.six, IPv6Address("fe80::7"), gateway6):
            for claimed6 in (gateway6, neighbor.six, IPv6Address("fe80::1")):
                packet = neighbor_advertisement(source, neighbor.six, claimed6, prisoner.mac)
                prisoner.send(frame(packet, prisoner.mac, neighbor.mac))
        advert = Packet(
            prisoner.six, IPv6Address("ff02::1"), 58, struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0), hops=255
        )
        prisoner.send(frame(advert, prisoner.mac, "33:33:00:00:00:01"))
        received = []
        while True:
            try:
                received.append(sniffer.recv(2000))
            except TimeoutError:
                break
        sent = bytes.fromhex(prisoner.mac.replace(":", ""))
        reports = bytes.fromhex("333300000016")  # where its own kernel reports its groups, for a second after its start
        assert [one.hex() for one in received if one[6:12] == sent and one[:6] != reports] == []
        honest = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + sent + prisoner.four.packed + victim
        prisoner.send(frame(honest, prisoner.mac, neighbor.mac, kind=0x0806))
        claim = neighbor_advertisement(prisoner.six, neighbor.six, prisoner.six, prisoner.mac)
        prisoner.send(frame(claim, prisoner.mac, neighbor.mac))
        kinds = {struct.unpack_from(">H", sniffer.recv(2000), 12)[0] for _ in range(2)}
        assert kinds == {0x0806, 0x86DD}


def test_the_bridge_cannot_be_made_to_send_elsewhere(prisoner: Container, neighbor: Container) -> None:
    """A frame from a neighbor's hardware address, also one for the bridge itself, does not move its port."""
    for target in (prisoner.gateway_mac(), "ff:ff:ff:ff:ff:ff", *(f"01:80:c2:00:00:{last:02x}" for last in range(16))):
        prisoner.send(frame(b"\0" * 46, neighbor.mac, target, kind=0x88CC))
    learned = [line for line in HOST.run("bridge fdb show br agents0").decode().splitlines() if neighbor.mac in line]
    assert learned
    assert not [line for line in learned if prisoner.port in line]


def test_services_of_the_host(prisoner: Container) -> None:
    """They are refused at each of its addresses, but for the one that is allowed."""
    bridge = HOST.run("ip -6 -oneline address show dev agents0 scope link").decode().split()[3].partition("/")[0]
    addresses = ["10.66.1.1", "fd66:1::1", "203.0.113.2", "2001:db8:f::2", "127.0.0.1"]
    with ExitStack() as stack:
        for port in (8080, 9090):
            for family in (socket.AF_INET, socket.AF_INET6):
                server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                if family == socket.AF_INET6:
                    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                server.bind(("", port))
                server.listen()
        for address in addresses[:4]:
            assert prisoner.connect(address, 9090) == "Connection refused"
            assert prisoner.connect(address, 8080) == "open"
        with open_inside(prisoner.namespace, socket.AF_INET6, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            scope = int(prisoner.namespace.index("eth0"))
            with pytest.raises((ConnectionRefusedError, TimeoutError)):
                client.connect((bridge, 9090, 0, scope))


def test_datagrams_to_everyone_do_not_reach_the_host(prisoner: Container) -> None:
    """A service of the host that listens for broadcasts or for a group gets none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("", 5300))
        server.settimeout(0.3)
        membership = socket.inet_aton("224.0.0.251") + socket.inet_aton("10.66.1.1")
        server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        for address, mac in (
            ("10.66.1.255", "ff:ff:ff:ff:ff:ff"),
            ("255.255.255.255", "ff:ff:ff:ff:ff:ff"),
            ("224.0.0.251", "01:00:5e:00:00:fb"),
        ):
            prisoner.send(frame(udp(prisoner.four, ip_address(address), 5300), prisoner.mac, mac))
        with pytest.raises(TimeoutError):
            server.recv(100)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"in", ("10.66.1.1", 5300))
        assert server.recv(100) == b"in"


def test_a_published_port_of_the_host(prisoner: Container, neighbor: Container) -> None:
    """The way to another service leads over an address of the host, which is refused."""
    HOST.run("nft add table ip published")
    try:
        HOST.run("nft add chain ip published to '{ type nat hook prerouting priority dstnat; }'")
        HOST.run(f"nft add rule ip published to ip daddr 203.0.113.2 tcp dport 7070 dnat to {neighbor.four}:7070")
        with open_inside(neighbor.namespace, socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind((str(neighbor.four), 7070))
            server.listen()
            assert prisoner.connect("203.0.113.2", 7070) == "Connection refused"
            assert prisoner.connect(str(neighbor.four), 7070) == "open"
    finally:
        HOST.run("nft delete table ip published")


def test_a_published_port_answers(prisoner: Container, outside: Internet) -> None:
    """Who is outside may connect to a container, and gets answers; that opens no connection the other way."""
    with open_inside(prisoner.namespace, socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind((str(prisoner.four), 7070))
        server.listen()
        server.settimeout(3)
        with open_inside(outside.namespace, socket.AF_INET, socket.SOCK_STREAM) as client:
            client.settimeout(3)
            client.bind((CLOSED[0], 0))
            client.connect((str(prisoner.four), 7070))
            accepted, _ = server.accept()
            with accepted:
                accepted.sendall(b"answer")
                assert client.recv(100) == b"answer"
    assert prisoner.connect(CLOSED[0], 443) == "Connection refused"


def test_another_guarded_network(prisoner: Container, tmp_path: Path) -> None:
    """Its containers are like any other destination."""
    other = Network(tmp_path, "second", 2, ["10.66.1.0/24"])
    try:
        with other.container("stranger") as stranger:
            for here, there, expected in ((prisoner, stranger, "Connection refused"), (stranger, prisoner, "open")):
                with open_inside(there.namespace, socket.AF_INET, socket.SOCK_STREAM) as server:
                    server.bind((str(there.four), 7071))
                    server.listen()
                    assert here.connect(str(there.four), 7071) == expected
    finally:
        other.remove()


@pytest.mark.usefixtures("prisoner")
def test_an_unknown_source_on_a_guarded_bridge(outside: Internet) -> None:
    """A port that the plugin has never seen sends nothing outside, whatever addresses it uses."""
    with made_namespace("unknown") as unknown:
        HOST.ip(f"link add vunknown up master agents0 type veth peer name eth0 netns {unknown.path}")
        unknown.ip("link set eth0 up", "address add 10.66.1.99/24 dev eth0", "route add default via 10.66.1.1")
        outside.arrivals()
        with open_inside(unknown, socket.AF_INET, socket.SOCK_DGRAM) as client:
            for target in (CLOSED[0], OPEN[0], WEB[0]):
                client.sendto(b"out", (target, 443))
        assert outside.arrivals() == []


def test_metadata_needs_an_entry_of_its_own(outside: Internet, tmp_path: Path) -> None:
    """A list that allows every address does not allow the metadata of a cloud."""
    HOST.ip(f"route add {METADATA}/32 via 203.0.113.1")
    wide = Network(tmp_path, "wide", 3, ["0.0.0.0/0"])
    try:
        with wide.container("one") as one, wide.container("two", f"{METADATA}:80/tcp") as two:
            outside.arrivals()
            one.emit(tcp_syn(one.four, ip_address(METADATA), 80))
            assert outside.arrivals() == []
            one.emit(tcp_syn(one.four, ip_address(CLOSED[0]), 80))
            two.emit(tcp_syn(two.four, ip_address(METADATA), 80))
            two.emit(tcp_syn(two.four, ip_address(METADATA), 81))
            assert outside.arrivals() == [f"6 {one.four} > {CLOSED[0]}:80", f"6 {two.four} > {METADATA}:80"]
    finally:
        wide.remove()
        HOST.ip(f"route delete {METADATA}/32")
