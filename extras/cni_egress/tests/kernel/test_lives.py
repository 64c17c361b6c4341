# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The life of a policy: ADD, CHECK, changes, DEL and GC, and what others do to the tables meanwhile."""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from cni_egress.elements import Elements
from cni_egress.enforcement import Enforcement
from cni_egress.nftables import Change, Element, Family, Nftables, Verb, key_ifname
from cni_egress.policy import PortRange, Protocol
from cni_egress.records import Record, RecordGone, Records
from cni_egress.table_watch import TableWatch
from cni_invoker import PluginFailed
from tests.egress.guarded import EGRESS, Container, Network
from tests.egress.internet import HOST, Internet, internet, open_inside
from tests.egress.packets import tcp_syn, udp
from tests.egress.responder_host import COMMAND
from tests.kernel.namespace import made_namespace

OPEN, CLOSED, SIX = "198.51.100.17", "198.51.100.9", "2001:db8:1::9"
HTTPS = PortRange(Protocol.TCP, 443, 443)


@pytest.fixture(name="outside", scope="module")
def make_outside(private_namespaces: int) -> Iterator[Internet]:
    """The internet of all tests."""
    assert private_namespaces
    with internet(OPEN, CLOSED, SIX) as made:
        yield made


@pytest.fixture(name="records")
def make_records() -> Iterator[Records]:
    """The records of this host, of which nothing may be left."""
    records = Records()
    yield records
    assert records.all() == ()
    with records.locked(), Enforcement(records) as enforcement:
        enforcement.sweep()
    with Nftables() as nftables:
        for name in ("sources4", "sources6", "askers4", "names4", "names6", "any-4"):
            assert nftables.keys(Family.INET, name) == []
    assert "chain policy-" not in HOST.run("nft list ruleset").decode()
    text = (
        "table inet cni-egress; table bridge cni-egress; delete table inet cni-egress; delete table bridge cni-egress"
    )
    subprocess.run(["nft", text], check=True)
    for family in ("-4", "-6"):
        while b"blackhole" in HOST.run(f"ip {family} rule show priority 40"):
            HOST.ip(f"{family} rule delete priority 40")


@pytest.fixture(name="network")
def make_network(outside: Internet, records: Records, tmp_path: Path) -> Iterator[Network]:
    """A guarded network."""
    del outside, records  # requested so that they are there
    made = Network(tmp_path, "agents", 1, ["198.51.100.16/28"])
    yield made
    made.remove()


def record_of(container: Container) -> Record:
    """The record of a container, as the responder finds it."""
    found = Records().by_source(container.four)
    assert found is not None
    return found


def reach(container: Container, outside: Internet) -> tuple[bool, bool]:
    """Whether a datagram arrives at the address that is allowed, and whether at the one that is not."""
    outside.arrivals()
    container.emit(*(udp(container.four, ip_address(to), 443) for to in (OPEN, CLOSED)))
    arrived = outside.arrivals()
    return tuple(any(f"> {to}:" in line for line in arrived) for to in (OPEN, CLOSED))  # type: ignore[return-value]


def test_check_sees_what_is_missing(network: Network, outside: Internet) -> None:
    """An element, a rule, a chain, the routing rule or the tables: CHECK says what; repair puts it back."""
    with network.container("one") as one:
        network.check(one)
        for command, missing in (
            (
                f"nft delete element inet cni-egress sources4 {{ agents0 . {one.four} }}",
                "an element in the set sources4",
            ),
            (f"nft delete element bridge cni-egress ports {{ {one.port} }}", "an element in the set ports"),
            ("nft flush chain inet cni-egress guard", "the tables cni-egress"),
            ("nft flush chain bridge cni-egress check", "the tables cni-egress"),
            ("ip -6 rule delete priority 40 iif agents0", "the routing rule for agents0"),
            ("nft flush ruleset", "the tables cni-egress"),
        ):
            HOST.run(f"sh -c '{command}'")
            with pytest.raises(PluginFailed, match=f"eth0 of one on network agents is not fully guarded: {missing}"):
                network.check(one)
            with Records().locked(), Enforcement(Records()) as enforcement:
                assert missing in enforcement.repair()[0]
                assert enforcement.repair() == ()
            network.check(one)
            assert reach(one, outside) == (True, False)
    with Enforcement(Records()) as enforcement:
        assert enforcement.repair() == ()


def test_a_saved_ruleset(network: Network, outside: Internet) -> None:
    """What `nft list ruleset` prints can be loaded again, as at the next boot of a host whose operator saves it."""
    entries = ("a.example", "b.example:*", "c.example:100-200/tcp", "host:53", "169.254.169.254:80/tcp", "[::/0]:443")
    with Records().responding(), network.container("one", *entries) as one:
        saved = HOST.run("nft list ruleset")
        subprocess.run(["nft", "-f", "-"], input=b"flush ruleset\n" + saved, check=True)
        network.check(one)
        assert reach(one, outside) == (True, False)


def test_the_second_lock_holds_without_tables(network: Network, outside: Internet) -> None:
    """After `nft flush ruleset` nothing leaves at all; without the lock it would."""
    with network.container("one") as one:
        HOST.run("nft flush ruleset")
        assert reach(one, outside) == (False, False)
        # A false source is possible now; an error of the host to it would have the datagram's content.
        one.emit(udp(IPv4Address(CLOSED), IPv4Address("192.0.2.200"), 443))
        assert outside.arrivals() == []
        HOST.ip("rule delete priority 40 iif agents0")
        assert reach(one, outside) == (True, True)
        with Records().locked(), Enforcement(Records()) as enforcement:
            enforcement.repair()
        assert reach(one, outside) == (True, False)


def test_the_lock_does_not_touch_others(network: Network, outside: Internet) -> None:
    """The host itself and containers of other bridges go on, and reply to those who ask them."""
    with network.container("one"), made_namespace("other") as other:
        HOST.ip("link add plain0 up type bridge", "address add 10.77.0.1/24 dev plain0")
        HOST.ip(f"link add vplain up master plain0 type veth peer name eth0 netns {other.path}")
        other.ip("link set eth0 up", "address add 10.77.0.2/24 dev eth0", "route add default via 10.77.0.1")
        try:
            other.run(f"busybox ping -c 1 -W 2 {CLOSED}")
            HOST.run(f"busybox ping -c 1 -W 2 {CLOSED}")
            outside.namespace.run("busybox ping -c 1 -W 2 10.77.0.2")
        finally:
            HOST.ip("link delete plain0")


def test_a_connection_outlives_a_repair(network: Network, outside: Internet) -> None:
    """Tables that are made anew do not end what was allowed."""
    with (
        network.container("one") as one,
        outside.listening(OPEN, 443) as server,
        open_inside(one.namespace, socket.AF_INET, socket.SOCK_STREAM) as client,
    ):
        client.settimeout(3)
        client.connect((OPEN, 443))
        accepted, _ = server.accept()
        with accepted:
            for command in ("nft flush ruleset", "nft delete table inet cni-egress", "true"):
                HOST.run(command)
                with Records().locked(), Enforcement(Records()) as enforcement:
                    enforcement.repair()
                client.sendall(b"more")
                accepted.settimeout(3)
                assert accepted.recv(100) == b"more"


def test_nothing_is_inherited_with_an_address(network: Network, outside: Internet) -> None:
    """Neither what names had opened to the container before, nor its connections, nor its list."""
    with Records().responding(), network.container("one", *("a.example", "b.example:*")) as one:
        address = one.four
        with Nftables() as nftables:
            elements = Elements(nftables, Records())
            elements.allow(record_of(one), [ip_address(CLOSED)], [HTTPS], 600)
            any_port = PortRange(Protocol.ANY, 0, 65535)
            elements.allow(record_of(one), [ip_address(SIX)], [any_port], 600)
        outside.arrivals()
        one.emit(tcp_syn(one.four, ip_address(CLOSED), 443), udp(one.six, ip_address(SIX), 7))
        assert len(outside.arrivals()) == 2
        stale = record_of(one)
    with Nftables() as nftables, pytest.raises(RecordGone):
        Elements(nftables, Records()).allow(stale, [ip_address(CLOSED)], [HTTPS], 600)
    two = network.attachment("two")
    with made_namespace("two") as namespace:
        # host-local goes on to the next address, so it is asked for.
        leases = network.leases()
        for lease in leases:
            lease.unlink()
        result = network.add(two)
        try:
            again = Container(two, namespace, result)
            assert again.four == address
            outside.arrivals()
            again.emit(tcp_syn(again.four, ip_address(CLOSED), 443), udp(again.six, ip_address(SIX), 7))
            assert outside.arrivals() == []
        finally:
            network.delete(two)


def test_names_are_open_to_the_one_who_asked_and_for_a_time(network: Network, outside: Internet) -> None:
    """An element opens one port at one address to one container, is renewed, and expires."""
    with (
        Records().responding(),
        network.container("one", "a.example") as one,
        network.container("two") as two,
        Nftables() as nftables,
    ):
        elements = Elements(nftables, Records())
        for lifetime in (600, 1.5):  # a new time replaces the old one
            elements.allow(record_of(one), [ip_address(CLOSED), ip_address(SIX)], [HTTPS], lifetime)
        outside.arrivals()
        for box in (one, two):
            box.emit(*(tcp_syn(box.four, ip_address(CLOSED), port) for port in (443, 444)))
            box.emit(*(tcp_syn(box.six, ip_address(SIX), port) for port in (443, 444)))
        assert outside.arrivals() == [f"6 {one.four} > {CLOSED}:443", f"6 {one.six} > {SIX}:443"]
        time.sleep(1.7)
        one.emit(tcp_syn(one.four, ip_address(CLOSED), 443))
        assert outside.arrivals() == []


@pytest.mark.long
def test_many_elements(network: Network) -> None:
    """A thousand addresses take one transaction; DEL removes all of them, and only them."""
    with (
        Records().responding(),
        network.container("one", "a.example") as one,
        network.container("two", "a.example") as two,
        Nftables() as nftables,
    ):
        elements = Elements(nftables, Records())
        many = [ip_address(f"203.0.{number >> 8}.{number & 255}") for number in range(1000)]
        for box in (one, two):
            begun = time.perf_counter()
            elements.allow(record_of(box), many, [HTTPS, PortRange(Protocol.TCP, 80, 80)], 600)
            assert time.perf_counter() - begun < 2
        assert len(nftables.keys(Family.INET, "names4")) == 4000
        network.delete(one.attachment)
        assert len(nftables.keys(Family.INET, "names4")) == 2000


def test_a_list_changes(network: Network, outside: Internet) -> None:
    """Another ADD replaces the policy: what it does not allow is refused at once."""
    with network.container("one") as one:
        assert reach(one, outside) == (True, False)
        result = dict(one.result.document)
        answer = network.call("ADD", "one", {"allow": [f"{CLOSED}:443/udp"], "prevResult": result})
        assert "code" not in answer
        assert reach(one, outside) == (False, True)


def test_what_is_not_allowed_any_more_ends(network: Network, outside: Internet) -> None:
    """A connection goes on under a list that changes, and ends when the list does not have its address any more."""
    with (
        network.container("one") as one,
        outside.listening(OPEN, 443) as server,
        open_inside(one.namespace, socket.AF_INET, socket.SOCK_STREAM) as client,
    ):
        client.settimeout(3)
        client.connect((OPEN, 443))
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(1)
            result = dict(one.result.document)
            for allow, expected in (([f"{OPEN}:443/tcp"], b"more"), ([CLOSED], b"")):
                assert "code" not in network.call("ADD", "one", {"allow": allow, "prevResult": result})
                assert _passed_on(client, accepted) == expected


def _passed_on(client: socket.socket, accepted: socket.socket) -> bytes:
    """What arrives of some bytes on a connection; nothing if it has ended."""
    try:
        client.sendall(b"more")
        return accepted.recv(100)
    except (ConnectionError, TimeoutError):
        return b""


@pytest.mark.long
def test_the_mark_is_a_setting(outside: Internet, records: Records, tmp_path: Path) -> None:
    """It is the same for all networks of a host, and one that is not a single bit is refused."""
    network = Network(tmp_path, "agents", 1, ["198.51.100.16/28"], settings={"mark": "0x20000000"})
    other = Network(tmp_path, "second", 2, ["198.51.100.16/28"])
    assert "is not one bit of 32" in str(network.call("STATUS", settings={"mark": "0x3"}).get("msg"))
    with network.container("one") as one:
        network.check(one)
        assert b"fwmark 0/0x20000000" in HOST.run("ip rule show priority 40")
        assert reach(one, outside) == (True, False)
        message = "eth0 of one on network agents has the mark 0x20000000, not 0x10000000"
        with pytest.raises(PluginFailed, match=message), other.container("two"):
            pass
    changed = Network(tmp_path, "agents", 1, ["198.51.100.16/28"])
    with changed.container("one") as one:
        assert b"0x20000000" not in HOST.run("ip rule show priority 40")
        changed.check(one)
        assert reach(one, outside) == (True, False)
    assert records.all() == ()
    network.remove()
    other.remove()


SENDER = """
import socket, sys, time
while True:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for address in sys.argv[1:]:
            try:
                client.sendto(b"out", (address, 443))
            except OSError:
                pass
    time.sleep(0.0003)
"""


def test_a_process_that_runs_before_add(network: Network, outside: Internet) -> None:
    """On a bridge that is guarded, a link is guarded from its first packet on, also before the plugin has seen it."""
    with network.container("one"), made_namespace("two") as namespace:
        outside.arrivals()
        inside = ("nsenter", f"--net={namespace.path}", sys.executable, "-c", SENDER, OPEN, CLOSED)
        with subprocess.Popen(inside) as sender:
            try:
                two = network.attachment("two")
                address = network.add(two).ips[0].address.ip
                time.sleep(0.3)
                network.delete(two)
            finally:
                sender.kill()
        arrived = outside.arrivals()
    assert {line for line in arrived if line.startswith("17 ")} == {f"17 {address} > {OPEN}:443"}


def test_a_guard_ends_with_its_bridge(network: Network, outside: Internet, tmp_path: Path) -> None:
    """A bridge that is made again with its name is not guarded, and containers of others are for all that time."""
    other = Network(tmp_path, "other", 2, ["198.51.100.16/28"])
    with other.container("two") as two, sending(two):
        with network.container("one"):
            HOST.run("nft add element inet cni-egress links { gone0 }")
        assert sweep() == ["gone0"]  # the bridge is still there, and so is its guard
        HOST.ip("link delete agents0", "-6 rule delete priority 40 iif agents0")
        outside.arrivals()
        assert sweep() == ["agents0"]
        assert b"agents0" not in HOST.run("nft list ruleset") + HOST.run("ip rule") + HOST.run("ip -6 rule")
        HOST.ip("link add agents0 up type bridge", "address add 10.66.1.1/24 dev agents0")
        with made_namespace("plain") as plain:
            HOST.ip(f"link add vplain up master agents0 type veth peer name eth0 netns {plain.path}")
            plain.ip("link set eth0 up", "address add 10.66.1.2/24 dev eth0", "route add default via 10.66.1.1")
            plain.run(f"busybox ping -c 1 -W 2 {CLOSED}")
        other.check(two)
    arrived = {line for line in outside.arrivals() if line.startswith("17 ")}
    assert arrived == {f"17 {two.four} > {OPEN}:443"}
    other.remove()


def test_a_guard_outlives_a_bridge_with_containers(network: Network, outside: Internet) -> None:
    """Its containers have records: if they get a bridge of the same name again, they never reach more."""
    with network.container("one") as one, sending(one):
        mac = one.gateway_mac()
        for _ in range(5):
            HOST.ip("link delete agents0")
            assert sweep() == []
            HOST.ip(f"link add agents0 address {mac} up type bridge", f"link set {one.port} master agents0")
            HOST.ip("address add 10.66.1.1/24 dev agents0")  # last: only what comes through the bridge is guarded
            assert sweep() == []
            time.sleep(0.3)
        with Enforcement(Records()) as enforcement:
            assert enforcement.missing(record_of(one)) == ""
    arrived = {line for line in outside.arrivals() if line.startswith("17 ")}
    assert arrived == {f"17 {one.four} > {OPEN}:443"}


def test_a_container_whose_bridge_is_another_one(network: Network, outside: Internet) -> None:
    """Root has made the bridge again. The container's link is no port of it, but the host answers for its address."""
    with network.container("one") as one:
        HOST.ip("link delete agents0", "link add agents0 up type bridge", "address add 10.66.1.1/24 dev agents0")
        with sending(one):
            time.sleep(1.0)
    assert not [line for line in outside.arrivals() if line.startswith("17 ")]


def test_sweeps_and_adds_at_once(network: Network, outside: Internet) -> None:
    """The bridge of each container is made anew while guards of links that are gone are removed: none loses its own."""
    ended, swept = threading.Event(), list[str]()

    def go_on() -> None:
        while not ended.is_set():
            swept.extend(sweep())

    sweeper = threading.Thread(target=go_on)
    sweeper.start()
    try:
        for number in range(8):
            with network.container(f"one{number}") as one:
                network.check(one)
                assert reach(one, outside) == (True, False)
            network.remove()
    finally:
        ended.set()
        sweeper.join()
    assert {*swept, *sweep()} == {"agents0"}


def sweep() -> list[str]:
    """Call the command that removes the guards of links that are gone; gives those links, without gone ports."""
    ended = subprocess.run([COMMAND, "sweep", "--json"], stdout=subprocess.PIPE, check=True)
    there = {name for _, name in socket.if_nameindex()}
    return [str(link) for link in json.loads(ended.stdout)["removed"] if not link.startswith("veth") or link in there]


@contextmanager
def sending(container: Container) -> Iterator[None]:
    """Have a container send to the address that is allowed, and to the one that is not, all the time."""
    inside = ("nsenter", f"--net={container.namespace.path}", sys.executable, "-c", SENDER, OPEN, CLOSED)
    with subprocess.Popen(inside) as sender:
        try:
            yield
        finally:
            sender.kill()


def test_a_policy_that_comes_again(network: Network, outside: Internet) -> None:
    """Its chain stays for the next container, which need not wait for `nft`, while others are guarded."""
    entries = ("a.example:100-200/tcp",)

    def chains() -> set[str]:
        lines = HOST.run("nft -a list table inet cni-egress").decode().splitlines()
        return {line for line in lines if "chain policy-" in line or "set tcp-100-200-" in line}  # with their handles

    with Records().responding():
        with network.container("other"):
            others = chains()
            with network.container("one", *entries):
                before = chains()
            assert len(before - others) == 3
            assert chains() == before
            with network.container("two", *entries) as two:
                assert reach(two, outside) == (True, False)
                assert chains() == before
            network.gc("other")
            assert chains() == others
        assert chains() == set()


def test_gc(network: Network, outside: Internet) -> None:
    """What no valid attachment has is removed, also of a container whose link is gone."""
    with network.container("one") as one, network.container("two") as two:
        HOST.ip(f"link delete {two.port}")
        assert network.gc("one") == {}
        assert [record.container_id for record in Records().all()] == ["one"]
        HOST.run(f"nft add element inet cni-egress askers4 {{ agents0 . {two.four} }}")
        assert network.gc("one") == {}
        with Nftables() as nftables:
            assert nftables.keys(Family.INET, "askers4") == []
            ports = [key.rstrip(b"\0").decode() for key in nftables.keys(Family.BRIDGE, "ports")]
        assert ports == [one.port]
        assert reach(one, outside) == (True, False)


@pytest.mark.long
def test_a_kill_at_any_moment(network: Network, outside: Internet) -> None:
    """An ADD or DEL that is killed leaves nothing that DEL does not remove, and nothing open."""
    seed = random.Random(7)  # noqa: S311
    with network.container("one") as one:
        config = {
            "cniVersion": "1.0.0",
            "name": "agents",
            "type": "egress",
            "allow": ["198.51.100.16/28"],
            "prevResult": dict(one.result.document),
        }
        environment = {
            **os.environ,
            "CNI_CONTAINERID": "one",
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": "/run/netns/one",
            "CNI_PATH": "/x",
        }
        for _ in range(6):
            for command in ("DEL", "ADD"):
                process = subprocess.Popen(
                    [EGRESS],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    env={**environment, "CNI_COMMAND": command},
                )
                assert process.stdin is not None
                process.stdin.write(json.dumps(config).encode())
                process.stdin.close()
                time.sleep(seed.uniform(0.1, 0.6))
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert reach(one, outside)[1] is False


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ({"type": "macvlan", "master": "uplink"}, "egress guards containers behind the plugins bridge and ptp only"),
        ({"type": "ipvlan", "master": "uplink"}, "egress guards containers behind the plugins bridge and ptp only"),
        (
            {"type": "bridge", "bridge": "vlans0", "vlan": 7},
            "egress cannot guard a bridge with VLANs, and vlans0 has them",
        ),
    ],
)
@pytest.mark.usefixtures("outside")
def test_a_list_that_cannot_be_guarded(
    main: dict[str, str | int], message: str, records: Records, tmp_path: Path
) -> None:
    """ADD refuses it, and nothing is left."""
    network = Network(tmp_path, "vlans", 4, ["198.51.100.16/28"], main=main)
    if main["type"] != "macvlan":
        kind = "bridge vlan_filtering 1" if "vlan" in main else "ipvlan"
        if subprocess.run(
            f"ip link add tried {'link uplink' if kind == 'ipvlan' else ''} type {kind}".split(), check=False
        ).returncode:
            pytest.skip(f"this kernel has no {kind}")
        HOST.ip("link delete tried")
    with pytest.raises(PluginFailed, match=message), network.container("one"):
        pass
    network.remove()
    assert records.all() == ()


@pytest.mark.long
def test_names_need_the_responder(network: Network) -> None:
    """Without it ADD and STATUS say what to start; a list of addresses needs none."""
    assert network.call("STATUS") == {}
    answer = network.call("STATUS", settings={"allow": ["a.example"]})
    assert (answer["code"], answer["msg"]) == (
        50,
        "the allow-list has names, and cni-egress does not run, which resolves them",
    )
    with pytest.raises(PluginFailed, match="cni-egress does not run"), network.container("one", "a.example"):
        pass
    with network.container("two"), Records().responding():
        assert network.call("STATUS", settings={"allow": ["a.example"]}) == {}


@pytest.mark.long
def test_an_invalid_list(network: Network) -> None:
    """ADD and STATUS say which entry is wrong; nothing is left."""
    answer = network.call("STATUS", settings={"allow": ["https://a.example"]})
    assert "the allow-list of network agents is invalid: 'https://a.example': a policy knows no https://" in str(
        answer["msg"]
    )
    with pytest.raises(PluginFailed, match=r"'\*': would|'\*' would allow every name"), network.container("one", "*"):
        pass
    with network.container("two"):
        pass


@pytest.mark.long
def test_a_set_of_entries(network: Network, outside: Internet) -> None:
    """It is a file with an entry in each line."""
    answer = network.call("STATUS", settings={"allow": ["@none"]})
    assert "'@none': /etc/cni-bridge/egress.d/none: No such file or directory; a set is a file" in str(answer["msg"])
    HOST.run("mkdir -p /etc/cni-bridge")
    HOST.run("mount -t tmpfs tmpfs /etc/cni-bridge")
    try:
        directory = Path("/etc/cni-bridge/egress.d")
        directory.mkdir()
        (directory / "lab").write_text(f"# the lab\n{CLOSED}:443/udp  # closed otherwise\n\n", "utf-8")
        with network.container("one", "@lab") as one:
            assert reach(one, outside) == (True, True)
    finally:
        HOST.run("umount /etc/cni-bridge")


@pytest.mark.long
def test_an_address_that_is_taken(network: Network, outside: Internet, tmp_path: Path) -> None:
    """A second network with the same subnet is refused while a container has the address."""
    (tmp_path / "other").mkdir()
    other = Network(tmp_path / "other", "double", 1, ["0.0.0.0/0"])
    with network.container("one") as one:
        taken = "eth0 of one on network agents has one of the addresses already"
        with pytest.raises(PluginFailed, match=taken), other.container("two"):
            pass
        assert reach(one, outside) == (True, False)
    other.remove()


@pytest.mark.usefixtures("records")
def test_a_ptp_link(outside: Internet, tmp_path: Path) -> None:
    """The list is the same, and so is what it allows; a false source leaves nothing."""
    network = Network(tmp_path, "direct", 5, ["198.51.100.16/28"], main={"type": "ptp"})
    with network.container("one") as one, network.container("two") as two:
        network.check(one)
        assert reach(one, outside) == (True, False)
        outside.arrivals()
        one.emit(udp(two.four, ip_address(OPEN), 443), udp(ip_address("10.66.5.200"), ip_address(OPEN), 443))
        one.emit(udp(one.four, ip_address("10.66.5.201"), 443))
        assert outside.arrivals() == []
        one.namespace.run(f"busybox ping -c 1 -W 2 {two.four}")
        one.namespace.run(f"busybox ping -c 1 -W 2 {two.six}")


@pytest.mark.usefixtures("records")
def test_audit(outside: Internet, tmp_path: Path) -> None:
    """Everything passes."""
    network = Network(tmp_path, "probe", 6, ["198.51.100.16/28"], settings={"audit": True})
    with Records().responding(), network.container("one") as one:
        assert reach(one, outside) == (True, True)
    network.remove()


def test_the_watch_of_the_tables(private_namespaces: int) -> None:
    """The changes of others arrive, and not those through the socket that it ignores."""
    assert private_namespaces
    subprocess.run(["nft", "table inet cni-egress { set links { type ifname; }; chain guard { }; }"], check=True)
    with Nftables() as own, Nftables() as other, TableWatch(ignored=own.netlink.port) as watch:
        element = Change(Verb.ADD, Family.INET, "links", (Element(key_ifname("br0")),))
        own.commit([element])
        assert not select.select([watch], [], [], 0.2)[0]
        other.commit([replace(element, verb=Verb.DELETE)])
        assert select.select([watch], [], [], 5)[0]
        assert not watch.has_removal()
        subprocess.run(["nft", "delete table inet cni-egress"], check=True)
        assert select.select([watch], [], [], 5)[0]
        assert watch.has_removal()
