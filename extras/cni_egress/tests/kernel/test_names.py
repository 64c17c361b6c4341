# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names of a guarded container: what it learns, and what it reaches then."""

import socket
import threading
import time
from collections.abc import Iterator
from itertools import count

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import pytest

from tests.egress.responder_host import RESPONDER6, Container, Host, guarded_host
from tests.egress.upstream import FakeUpstream, serving
from tests.lab.waiting import wait_until

ALLOW = (
    "www.example.com",
    "ssh.example.com:22/tcp",
    "any.example.com:*",
    "range.example.com:20-30/tcp",
    "*.wild.example",
    "slow.example.com",
    "moves.example.com",
    "10.0.5.0/24:5432",
)
MANY = tuple(f"11.8.{number}.1" for number in range(80))
NUMBERS = count(10)


@pytest.fixture(name="host", scope="module")
def start_host(private_namespaces: int) -> Iterator[Host]:
    """A host with the daemon."""
    assert private_namespaces
    with serving(FakeUpstream()) as upstream, guarded_host(upstream) as made:
        made.start_daemon("--grace", "5", "--cache", "0")
        yield made


@pytest.fixture(name="upstream")
def clean_upstream(host: Host) -> FakeUpstream:
    """The resolver, with the names of every test."""
    upstream = host.upstream
    for one in (upstream.zone, upstream.ttl, upstream.rcodes, upstream.delays, upstream.forged, upstream.asked):
        one.clear()
    upstream.silent.clear()
    upstream.truncated.clear()
    return upstream


@pytest.fixture(name="agent")
def start_agent(host: Host) -> Iterator[Container]:
    """A container with the policy `ALLOW`."""
    with host.container(next(NUMBERS), ALLOW) as container:
        yield container


def rcode_of(response: dns.message.Message) -> str:
    """Return the outcome of a response."""
    return dns.rcode.to_text(response.rcode())


def test_an_allowed_name(upstream: FakeUpstream, agent: Container) -> None:
    """Its address is closed before the container has asked, and open at the ports of the web afterwards."""
    upstream.add("www.example.com", "A", "11.1.0.1")
    upstream.add("www.example.com", "AAAA", "2a0f:1::1")
    assert not agent.can_reach("11.1.0.1")
    assert agent.addresses("www.example.com") == ["11.1.0.1"]
    assert [agent.can_reach("11.1.0.1", port) for port in (443, 80, 22)] == [True, True, False]
    assert not agent.can_reach("2a0f:1::1")
    assert agent.addresses("WWW.Example.COM", "AAAA") == ["2a0f:1::1"]
    assert agent.can_reach("2a0f:1::1")


def test_another_container(host: Host, upstream: FakeUpstream, agent: Container) -> None:
    """What one has opened is closed for the other."""
    upstream.add("www.example.com", "A", "11.1.0.2")
    with host.container(next(NUMBERS), ["other.example.com"]) as other:
        assert agent.addresses("www.example.com") == ["11.1.0.2"]
        assert rcode_of(other.ask("www.example.com")) == "NXDOMAIN"
        assert (agent.can_reach("11.1.0.2"), other.can_reach("11.1.0.2")) == (True, False)


@pytest.mark.parametrize("transport", ["UDP", "TCP"])
@pytest.mark.parametrize("server", ["169.254.53.53", RESPONDER6, "11.53.0.1", "2a0f:53::1"])
def test_every_server_is_the_responder(upstream: FakeUpstream, agent: Container, server: str, transport: str) -> None:
    """Whichever server a container asks, by whichever transport."""
    upstream.add("www.example.com", "A", "11.1.0.3")
    is_tcp = transport == "TCP"
    assert agent.addresses("www.example.com", tcp=is_tcp, server=server) == ["11.1.0.3"]
    assert rcode_of(agent.ask("evil.example", tcp=is_tcp, server=server)) == "NXDOMAIN"
    assert upstream.asked["evil.example", "A", "udp"] == 0


@pytest.mark.parametrize("kind", ["A", "AAAA", "TXT", "NULL", "MX", "CNAME", "SRV", "HTTPS", "ANY", "TYPE65280"])
def test_names_that_are_not_allowed(upstream: FakeUpstream, agent: Container, kind: str) -> None:
    """No type of record leaves the host; the look-up fails at once."""
    began = time.monotonic()
    assert rcode_of(agent.ask("c2VjcmV0.evil.example", kind)) == "NXDOMAIN"
    assert rcode_of(agent.ask("db", kind)) == "REFUSED"
    assert time.monotonic() - began < 1
    assert not upstream.asked


def test_a_chain_of_aliases(upstream: FakeUpstream, agent: Container) -> None:
    """The whole chain is passed on, and its end is open; a name in its middle alone is refused."""
    upstream.add("www.example.com", "CNAME", "a.cdn.example.")
    upstream.add("a.cdn.example", "CNAME", "b.cdn.example.")
    upstream.add("b.cdn.example", "A", "11.1.0.4")
    response = agent.ask("www.example.com")
    assert [dns.rdatatype.to_text(one.rdtype) for one in response.answer] == ["CNAME", "CNAME", "A"]
    assert agent.can_reach("11.1.0.4")
    assert [rcode_of(agent.ask(name)) for name in ("a.cdn.example", "b.cdn.example")] == ["NXDOMAIN"] * 2


def test_wildcards(upstream: FakeUpstream, agent: Container) -> None:
    """Names at any depth below, but neither the name itself nor one that only ends like it."""
    for number, name in enumerate(("x.wild.example", "x.y.wild.example", "wild.example", "evilwild.example")):
        upstream.add(name, "A", f"11.2.0.{number}")
    assert agent.addresses("x.wild.example") == ["11.2.0.0"]
    assert agent.addresses("x.y.wild.example") == ["11.2.0.1"]
    assert [rcode_of(agent.ask(name)) for name in ("wild.example", "evilwild.example")] == ["NXDOMAIN"] * 2
    assert [agent.can_reach(f"11.2.0.{number}") for number in range(4)] == [True, True, False, False]


def test_ports_of_names(upstream: FakeUpstream, agent: Container) -> None:
    """One port, every port, and a range."""
    for number, name in enumerate(("ssh", "any", "range")):
        upstream.add(f"{name}.example.com", "A", f"11.3.0.{number}")
        agent.addresses(f"{name}.example.com")
    found = [[agent.can_reach(f"11.3.0.{number}", port) for port in (22, 80, 443)] for number in range(3)]
    assert found == [[True, False, False], [True, True, True], [True, False, False]]


@pytest.mark.parametrize("transport", ["UDP", "TCP"])
def test_eighty_addresses(upstream: FakeUpstream, agent: Container, transport: str) -> None:
    """By TCP all are delivered and open. By UDP the answer is truncated: nothing is delivered, and nothing is open."""
    upstream.add("www.example.com", "A", *MANY)
    response = agent.ask("www.example.com", tcp=transport == "TCP")
    if transport == "UDP":
        assert response.flags & dns.flags.TC
        assert not response.answer
        assert not agent.can_reach(MANY[0])
    else:
        assert sorted(str(one) for one in response.answer[0]) == sorted(MANY)
        assert all(agent.can_reach(address) for address in (MANY[0], MANY[40], MANY[79]))


def test_a_truncated_answer_of_the_upstream(upstream: FakeUpstream, agent: Container) -> None:
    """The upstream is asked by TCP."""
    upstream.add("www.example.com", "A", "11.1.0.5")
    upstream.truncated.add("www.example.com")
    assert agent.addresses("www.example.com") == ["11.1.0.5"]
    assert upstream.asked["www.example.com", "A", "tcp"] == 1


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        ("A", "10.0.0.1"), ("A", "169.254.169.254"), ("A", "127.0.0.1"), ("A", "11.0.0.1"), ("A", "10.66.0.1"),
        ("AAAA", "::ffff:11.1.0.1"), ("AAAA", "fd00:66::1"), ("AAAA", "2a0f::1"), ("AAAA", "::1"),
        ("AAAA", "64:ff9b::a9fe:a9fe"),
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(upstream: FakeUpstream, agent: Container, kind: str, address: str) -> None:
    """Private ones, metadata, loopback and the host's own are taken out; the rest of the answer stays."""
    good = "11.1.0.7" if kind == "A" else "2a0f:1::7"
    upstream.add("www.example.com", kind, address, good)
    assert agent.addresses("www.example.com", kind) == [good]
    assert not agent.can_reach(address, 22)


def test_a_name_that_moves_under_load(host: Host, upstream: FakeUpstream, agent: Container) -> None:
    """While two containers ask without pause, each address that they learn is open to them."""
    began = time.monotonic()
    upstream.zone["moves.example.com", "A"] = lambda: (f"11.5.0.{int(time.monotonic() - began) + 1}",)
    upstream.ttl["moves.example.com"] = 0
    learnt: set[str] = set()
    closed: list[str] = []

    def work(container: Container) -> None:
        while time.monotonic() - began < 8:
            for address in container.addresses("moves.example.com"):
                learnt.add(address)
                if container.can_reach(address):
                    host.listeners[443].accept()[0].close()  # a full queue would refuse the next ones
                else:
                    closed.append(address)

    with host.container(next(NUMBERS), ALLOW) as other:
        threads = [threading.Thread(target=work, args=(one,)) for one in (agent, other) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not closed
    assert len(learnt) >= 5


def test_a_slow_upstream(host: Host, upstream: FakeUpstream, agent: Container) -> None:
    """While names of a container wait, those of others, and its own other ones, are answered."""
    upstream.add("slow.example.com", "A", "11.1.0.9")
    upstream.add("www.example.com", "A", "11.1.0.10")
    upstream.silent.add("slow.example.com")
    slow: list[str] = []
    with host.container(next(NUMBERS), ALLOW) as other:
        asking = [
            threading.Thread(target=lambda: slow.append(rcode_of(agent.ask("slow.example.com")))) for _ in range(3)
        ]
        for thread in asking:
            thread.start()
        began = time.monotonic()
        assert other.addresses("www.example.com") == agent.addresses("www.example.com") == ["11.1.0.10"]
        assert time.monotonic() - began < 2
        for thread in asking:
            thread.join()
    assert slow == ["SERVFAIL"] * 3


def test_a_lying_upstream(upstream: FakeUpstream, agent: Container) -> None:
    """Records that do not belong to the question open nothing."""
    upstream.add("www.example.com", "A", "11.1.0.11")

    def forge(query: dns.message.QueryMessage) -> tuple[bytes, ...]:
        wrong = dns.message.make_response(dns.message.make_query("evil.example", "A", id=query.id))
        wrong.answer.append(dns.rrset.from_text("www.example.com.", 60, "IN", "A", "11.6.6.6"))
        added = dns.message.make_response(query)
        added.id ^= 1
        return wrong.to_wire(), added.to_wire(), b"\0" * 40

    upstream.forged["www.example.com"] = forge
    assert agent.addresses("www.example.com") == ["11.1.0.11"]
    assert not agent.can_reach("11.6.6.6")


def test_an_unknown_source(host: Host, upstream: FakeUpstream) -> None:
    """A sender without a record is refused, also the host."""
    upstream.add("www.example.com", "A", "11.1.0.12")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.sendto(dns.message.make_query("www.example.com", "A").to_wire(), ("169.254.53.53", 53))
        assert rcode_of(dns.message.from_wire(sock.recv(4096))) == "REFUSED"
    assert host.daemon is not None


def test_messages_that_are_no_queries(agent: Container) -> None:
    """They are answered with an error or not at all, and the next query is answered."""
    with agent.connect("169.254.53.53", 53) as sock:
        sock.sendall(b"\0\4abcd")
        assert sock.recv(10) == b""
    assert rcode_of(agent.ask("www.example.com", "AXFR")) == "REFUSED"


def test_a_connection_outlives_its_address(upstream: FakeUpstream, host: Host, agent: Container) -> None:
    """When the policy does not renew it: a connection goes on, and no new one begins until the container asks again."""
    upstream.add("www.example.com", "A", "11.1.0.13", ttl=0)
    agent.addresses("www.example.com")
    with agent.connect("11.1.0.13", 80) as sock:
        upstream.rcodes["www.example.com"] = dns.rcode.NXDOMAIN  # so that the renewal finds nothing
        wait_until(lambda: not agent.can_reach("11.1.0.13"), "the address is closed", 20)
        sock.sendall(b"still here")
        while True:
            served, peer = host.listeners[80].accept()
            with served:
                if peer[1] == sock.getsockname()[1]:
                    assert served.recv(100) == b"still here"
                    break
    upstream.rcodes.clear()
    assert agent.addresses("www.example.com") == ["11.1.0.13"]
    assert agent.can_reach("11.1.0.13")


def test_names_in_use_are_renewed(upstream: FakeUpstream, agent: Container) -> None:
    """An address stays open although the program asks only once; a new address of the name is opened, too."""
    upstream.add("www.example.com", "A", "11.1.0.14", ttl=1)
    agent.addresses("www.example.com")
    upstream.add("www.example.com", "A", "11.1.0.14", "11.1.0.15", ttl=1)
    wait_until(lambda: agent.can_reach("11.1.0.15"), "the new address is open", 20)
    deadline = time.monotonic() + 12  # twice what an address lives
    while time.monotonic() < deadline:
        assert agent.can_reach("11.1.0.14")
        time.sleep(0.5)


def test_names_that_share_an_address(upstream: FakeUpstream, agent: Container) -> None:
    """A name with a short life does not close the address of one with a long life."""
    upstream.add("www.example.com", "A", "11.1.0.18", ttl=600)
    upstream.add("moves.example.com", "A", "11.1.0.18", ttl=0)
    for name in ("www.example.com", "moves.example.com"):
        assert agent.addresses(name) == ["11.1.0.18"]
    upstream.rcodes["moves.example.com"] = dns.rcode.NXDOMAIN
    deadline = time.monotonic() + 7  # longer than an address lives without its TTL
    while time.monotonic() < deadline:
        assert agent.can_reach("11.1.0.18")
        time.sleep(0.5)


def test_a_policy_that_was_changed(host: Host, upstream: FakeUpstream, agent: Container) -> None:
    """The next query is judged by the new one."""
    upstream.add("www.example.com", "A", "11.1.0.16")
    assert agent.addresses("www.example.com") == ["11.1.0.16"]
    host.change_policy(agent, ["other.example.com"])
    assert rcode_of(agent.ask("www.example.com")) == "NXDOMAIN"
    assert not agent.can_reach("11.1.0.16")


def test_audit(host: Host, upstream: FakeUpstream) -> None:
    """Every name is resolved, and every address reached."""
    upstream.add("anything.example", "A", "11.1.0.17", "10.1.1.1")
    with host.container(next(NUMBERS), (), audit=True) as container:
        assert sorted(container.addresses("anything.example")) == ["10.1.1.1", "11.1.0.17"]
        assert container.can_reach("11.1.0.17", 22)
