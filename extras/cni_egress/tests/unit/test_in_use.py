# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names that containers use."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

from cni_egress.in_use import NamesInUse
from cni_egress.message import Question, Type, parse_name
from cni_egress.policy import Policy
from cni_egress.records import Record

ONE = Record(
    network="agents",
    container_id="c1",
    ifname="eth0",
    link="agents0",
    port="port1",
    mac="02:00:00:00:00:01",
    addresses=(ip_address("10.66.0.5"),),
    subnets=(ip_network("10.66.0.0/24"),),
    policy=Policy.parse(["*.example.com"]),
)
TWO = replace(ONE, container_id="c2")
EIGHT, FOUR = ip_address("8.8.8.8"), ip_address("8.8.4.4")


def question(name: str) -> Question:
    """Return the question for the addresses of a name."""
    return Question(parse_name(name), Type.A)


def test_names_of_addresses() -> None:
    """The last name that led a container to an address; another container's does not count."""
    names = NamesInUse()
    names.note(ONE, question("a.example"), (EIGHT, FOUR), due=10, end=20)
    names.note(ONE, question("b.example"), (EIGHT,), due=10, end=20)
    assert [names.name_of(ONE, address) for address in (EIGHT, FOUR)] == ["b.example", "a.example"]
    assert names.name_of(TWO, EIGHT) == ""


def test_families_are_not_confused() -> None:
    """A part of an IPv6 address is no IPv4 address."""
    names = NamesInUse()
    six = Question(parse_name("a.example"), Type.AAAA)
    names.note(ONE, six, (ip_address("808:808::808:808"),), due=10, end=20)
    assert names.name_of(ONE, EIGHT) == ""
    assert names.end_of(ONE, (EIGHT,)) == 0
    assert names.name_of(ONE, ip_address("808:808::808:808")) == "a.example"


def test_what_is_open() -> None:
    """The same addresses for long enough, in any order, under the very same record."""
    names = NamesInUse()
    names.note(ONE, question("a.example"), (EIGHT, FOUR), due=10, end=20)
    assert names.is_open(ONE, question("a.example"), (FOUR, EIGHT), 20)
    assert not names.is_open(ONE, question("a.example"), (FOUR, EIGHT), 21)
    assert not names.is_open(ONE, question("a.example"), (FOUR,), 20)
    assert not names.is_open(ONE, question("b.example"), (FOUR, EIGHT), 20)
    assert not names.is_open(replace(ONE), question("a.example"), (FOUR, EIGHT), 20)
    names.make_all_due()
    assert not names.is_open(ONE, question("a.example"), (FOUR, EIGHT), 20)


def test_addresses_of_several_names() -> None:
    """They are open until the last of the names is over."""
    names = NamesInUse()
    names.note(ONE, question("a.example"), (EIGHT, FOUR), due=10, end=40)
    names.note(ONE, question("b.example"), (EIGHT,), due=10, end=20)
    assert [names.end_of(ONE, (address,)) for address in (EIGHT, FOUR, ip_address("9.9.9.9"))] == [40, 40, 0]
    assert names.end_of(TWO, (EIGHT,)) == 0


def test_what_is_due() -> None:
    """Each question at its own time; a question that is asked again has a new one."""
    names = NamesInUse()
    names.note(ONE, question("a.example"), (EIGHT,), due=10, end=20)
    names.note(TWO, question("a.example"), (EIGHT,), due=20, end=30)
    assert list(names.due(10)) == [(ONE, question("a.example"))]
    names.renew(ONE, question("a.example"), (FOUR,), due=30, end=40)
    assert list(names.due(20)) == [(TWO, question("a.example"))]
    assert (names.name_of(ONE, FOUR), names.name_of(ONE, EIGHT)) == ("a.example", "")
    names.postpone(TWO, question("a.example"), 25)
    assert list(names.due(20)) == []
    names.make_all_due()
    assert len(list(names.due(0))) == 2


def test_what_is_forgotten() -> None:
    """A question, or a container with all of its own; renewing what is forgotten does not bring it back."""
    names = NamesInUse()
    for name in ("a.example", "b.example"):
        names.note(ONE, question(name), (EIGHT,), due=10, end=20)
    names.forget(ONE, question("b.example"))
    assert names.name_of(ONE, EIGHT) == "a.example"
    names.forget(ONE)
    names.forget(TWO)
    names.renew(ONE, question("a.example"), (EIGHT,), due=10, end=20)
    names.postpone(ONE, question("a.example"), 10)
    assert len(names) == 0


def test_too_many_addresses() -> None:
    """A container may not fill the kernel's memory; when some are closed, it may open others."""
    names = NamesInUse()
    assert names.admit(ONE, 30_000, now=0, end=10)
    assert names.admit(ONE, 20_000, now=1, end=20)
    assert not names.admit(ONE, 1, now=9, end=20)
    assert names.admit(TWO, 1, now=9, end=20)
    assert names.admit(ONE, 30_000, now=10, end=20)
    assert not names.admit(ONE, 1, now=19, end=30)
    names.forget(ONE)
    assert names.admit(ONE, 50_000, now=19, end=30)


def test_a_container_with_many_names() -> None:
    """256 are remembered."""
    names = NamesInUse()
    for number in range(300):
        names.note(ONE, question(f"n{number}.example"), (EIGHT,), due=10, end=20)
    assert len(names) == 256
    assert names.name_of(ONE, EIGHT) == "n299.example"


def test_how_many_there_are() -> None:
    """By network: a name of two families is one, and one of two containers is two."""
    names = NamesInUse()
    names.note(ONE, question("a.example"), (EIGHT, FOUR), due=10, end=20)
    names.note(ONE, Question(parse_name("a.example"), Type.AAAA), (ip_address("2001:db8::1"),), due=10, end=20)
    names.note(TWO, question("a.example"), (EIGHT,), due=10, end=20)
    names.note(replace(ONE, container_id="c3", network="probe"), question("b.example"), (), due=10, end=20)
    assert names.count() == ({"agents": 2, "probe": 1}, {"agents": 4, "probe": 0})
