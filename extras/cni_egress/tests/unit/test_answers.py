# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which queries are forwarded, and what is left of answers."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_egress.answers import Kept, decide, has_network, is_public, keep
from cni_egress.message import CLASS_IN, Name, Query, Question, Rcode, Record, Response, Type, parse_name
from cni_egress.policy import Policy
from cni_egress.records import IpAddress

WWW = parse_name("www.example.com")


def query(kind: int, *, name: str = "www.example.com", klass: int = CLASS_IN, flags: int = 0x0100) -> Query:
    """Return a query."""
    question = Question(parse_name(name), kind, klass)
    return Query(id=1, flags=flags, question=question, asked=question.name, has_edns=False, udp_bytes=512)


def record(name: str, kind: int, value: str, ttl: int = 60) -> Record:
    """Return a record of an address or an alias."""
    data = parse_name(value) if kind in {Type.CNAME, Type.NS} else ip_address(value).packed
    return Record(parse_name(name), kind, CLASS_IN, ttl, data)


def response(*records: Record, kind: int = Type.A, rcode: int = Rcode.NOERROR, soa: Record | None = None) -> Response:
    """Return a response to the question for www.example.com."""
    return Response(id=1, question=Question(WWW, kind), rcode=rcode, answers=records, soa=soa)


def kept_of(found: Response, *networks: str) -> Kept:
    """Return what is kept under a policy with networks."""
    policy = Policy.parse(networks)
    return keep(found, permits=lambda address: has_network(policy, address))


def addresses(*texts: str) -> tuple[IpAddress, ...]:
    """Return addresses."""
    return tuple(map(ip_address, texts))


@pytest.mark.parametrize("kind", [Type.A, Type.AAAA, Type.CNAME, Type.MX, Type.TXT, Type.SRV, 257])
def test_data_of_allowed_names_is_forwarded(kind: int) -> None:
    """Any type of data of a name that the policy has."""
    assert decide(query(kind), is_allowed=True) is None


@pytest.mark.parametrize("kind", [Type.A, Type.AAAA, Type.TXT, 10, Type.HTTPS, Type.CNAME, Type.MX, 65280, Type.PTR])
def test_other_names_are_refused(kind: int) -> None:
    """Whatever the type: with NXDOMAIN, which ends a look-up at once, unless it may be the name of a container."""
    assert decide(query(kind), is_allowed=False) == Rcode.NXDOMAIN
    assert decide(query(kind, name="db"), is_allowed=False) == Rcode.REFUSED


@pytest.mark.parametrize("kind", [Type.HTTPS, Type.SVCB, Type.ANY])
def test_hints_are_empty(kind: int) -> None:
    """A client that finds none asks for the addresses."""
    assert decide(query(kind), is_allowed=True) == Rcode.NOERROR


@pytest.mark.parametrize("kind", [252, 251, 250, 249, 128, Type.OPT])
def test_what_is_no_data_is_refused(kind: int) -> None:
    """Transfers of a zone and the like, also of allowed names."""
    assert decide(query(kind), is_allowed=True) == Rcode.REFUSED


def test_other_requests() -> None:
    """Updates, notifications and other classes (`chaos`) are none of our business."""
    assert decide(query(Type.A, flags=5 << 11), is_allowed=True) == Rcode.NOTIMP
    assert decide(query(Type.A, flags=4 << 11), is_allowed=True) == Rcode.NOTIMP
    assert decide(query(Type.TXT, klass=3), is_allowed=True) == Rcode.REFUSED


def test_a_chain_of_aliases() -> None:
    """The records are followed from the question on, in whatever order they come; what does not belong to it goes."""
    found = kept_of(
        response(
            record("b.example.net", Type.A, "8.8.8.8", 50),
            record("a.example.net", Type.CNAME, "b.example.net", 40),
            record("www.example.com", Type.CNAME, "a.example.net", 30),
            record("other.example", Type.A, "8.8.4.4", 5),
            record("b.example.net", Type.NS, "ns.example"),
        )
    )
    assert [one.type for one in found.records] == [Type.CNAME, Type.CNAME, Type.A]
    assert (found.addresses, found.ttl_s) == (addresses("8.8.8.8"), 30)


def test_a_loop_of_aliases() -> None:
    """It has an end, and opens nothing."""
    found = kept_of(
        response(
            record("www.example.com", Type.CNAME, "a.example.net"),
            record("a.example.net", Type.CNAME, "www.example.com"),
        )
    )
    assert (len(found.records), found.addresses) == (2, ())


def test_the_alias_itself() -> None:
    """A query for the CNAME record gets it, and nothing is opened."""
    alias = record("www.example.com", Type.CNAME, "a.example.net")
    found = kept_of(response(alias, record("a.example.net", Type.A, "8.8.8.8"), kind=Type.CNAME))
    assert (found.records, found.addresses) == ((alias,), ())


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.5.5", "192.168.1.1", "100.64.0.1", "127.0.0.1", "0.0.0.0", "255.255.255.255",
        "169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "224.0.0.1", "240.0.0.1", "192.0.2.1",
        "198.18.0.1", "::", "::1", "::ffff:8.8.8.8", "::ffff:10.0.0.1", "::8.8.8.8", "fe80::1", "fec0::1", "fc00::1",
        "fd00:ec2::254", "ff02::1", "2001:db8::1", "2002:0808:0808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "64:ff9b::a9fe:a9fe", "64:ff9b::a00:1", "64:ff9b:1::808:808", "4000::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    """Private, shared, loopback, link-local, metadata, multicast, reserved, and IPv6 with an IPv4 address in it."""
    kind = Type.AAAA if ":" in address else Type.A
    found = kept_of(response(record("www.example.com", kind, address), kind=kind))
    assert (found.records, found.addresses, found.dropped) == ((), (), addresses(address))
    assert found.rcode == Rcode.NOERROR


@pytest.mark.parametrize("address", ["8.8.8.8", "192.0.1.1", "2606:4700::1", "2a00:1450::5", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    """They are passed on, and opened."""
    kind = Type.AAAA if ":" in address else Type.A
    found = kept_of(response(record("www.example.com", kind, address), kind=kind))
    assert (len(found.records), found.addresses) == (1, addresses(address))


def test_private_addresses_that_the_policy_has() -> None:
    """They are passed on, but the name opens nothing there: the network's own ports hold."""
    records = (record("www.example.com", Type.A, "10.0.5.7"), record("www.example.com", Type.A, "10.0.6.7"))
    found = kept_of(response(*records), "10.0.5.0/24:5432")
    assert (found.records, found.addresses, found.dropped) == (records[:1], (), addresses("10.0.6.7"))


def test_the_hosts_own_addresses() -> None:
    """A public address of the host is taken out; the rest stays."""
    records = (record("www.example.com", Type.A, "8.8.8.8"), record("www.example.com", Type.A, "8.8.4.4"))
    found = kept_of(response(*records)).without(frozenset(addresses("8.8.4.4")))
    assert (found.records, found.addresses, found.dropped) == (records[:1], addresses("8.8.8.8"), addresses("8.8.4.4"))


def test_lengths_of_lifetimes() -> None:
    """A TTL of 0 is passed on, one of more than an hour is an hour."""
    for ttl, expected in ((0, 0), (5, 5), (1 << 30, 3600)):
        found = kept_of(response(record("www.example.com", Type.A, "8.8.8.8", ttl)))
        assert (found.ttl_s, found.records[0].ttl) == (expected, expected)


def test_many_addresses() -> None:
    """Eighty are passed on and opened; of a thousand, 256."""
    for count, expected in ((80, 80), (1000, 256)):
        many = (record("www.example.com", Type.A, str(ip_address("8.8.0.0") + number)) for number in range(count))
        found = kept_of(response(*many))
        assert len(found.addresses) == len(found.records) == expected


def test_no_answer() -> None:
    """Negative answers keep their SOA record; errors of a resolver are SERVFAIL."""
    soa = Record(parse_name("example.com"), Type.SOA, CLASS_IN, 60, b"\0\0" + bytes(20))
    assert kept_of(response(rcode=Rcode.NXDOMAIN, soa=soa)) == Kept(rcode=Rcode.NXDOMAIN, soa=soa)
    assert kept_of(response(soa=soa)) == Kept(rcode=Rcode.NOERROR, soa=soa)
    found = record("www.example.com", Type.A, "8.8.8.8")
    for rcode in (Rcode.SERVFAIL, Rcode.REFUSED, Rcode.FORMERR, 15):
        assert kept_of(response(found, rcode=rcode)) == Kept(rcode=Rcode.SERVFAIL)


def test_data_of_a_wrong_length() -> None:
    """An address record with five bytes, or one in another class, is left out."""
    odd = Record(WWW, Type.A, CLASS_IN, 60, b"12345")
    chaos = Record(WWW, Type.A, 3, 60, b"\x08\x08\x08\x08")
    assert kept_of(response(odd, chaos)).records == ()


NAMES = st.sampled_from([WWW, *(parse_name(f"{letter}.example.net") for letter in "abc")])
ANY_RECORD = st.builds(
    Record,
    NAMES,
    st.sampled_from([Type.A, Type.AAAA, Type.CNAME, Type.TXT]),
    st.sampled_from([CLASS_IN, CLASS_IN, 3]),
    st.integers(0, 1 << 31),
    st.one_of(st.ip_addresses(v=4).map(lambda ip: ip.packed), st.ip_addresses(v=6).map(lambda ip: ip.packed), NAMES),
)


@given(st.lists(ANY_RECORD, max_size=20), st.sampled_from([Type.A, Type.AAAA, Type.CNAME, Type.TXT]))
def test_any_answer(records: list[Record], kind: Type) -> None:
    """What is opened is public, and was delivered; what is delivered was in the answer and hangs together."""
    aliases = [one for one in records if one.type == Type.CNAME]
    records = [one for one in records if one not in aliases or one.data in {WWW, *map(Name, (x.name for x in records))}]
    found = kept_of(response(*records, kind=kind), "10.0.0.0/8")
    delivered = {one.data for one in found.records if one.type in {Type.A, Type.AAAA}}
    assert all(is_public(address) and address.packed in delivered for address in found.addresses)
    assert {address.packed for address in found.dropped}.isdisjoint(delivered)
    expected = {WWW}
    for one in found.records:
        assert one.name in expected
        assert one.ttl <= 3600
        if one.type == Type.CNAME and kind != Type.CNAME:
            expected = {Name(one.data)}
