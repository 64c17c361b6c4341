# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports are chosen: free ones, no two the same, and those of before again."""

from collections.abc import Collection
from contextlib import nullcontext
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface

import pytest

from cnm_bridge.errors import Refused
from cnm_bridge.lifecycle.ports import PortMapping, choose_ports, parse_mappings, refuse_other_families
from cnm_bridge.wire import PortRequest

TCP = 6


class Programs:
    """The host's programs, which have these ports."""

    def __init__(self, *ports: int, proposals: Collection[int] = ()) -> None:
        self._ports = ports
        self._proposals = iter(proposals)

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Say that a port is taken."""
        del protocol, host_ip
        return "Address already in use" if port in self._ports else None

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Give the proposals one by one, and then none."""
        del protocol, host_ip
        try:
            return next(self._proposals)
        except StopIteration:
            raise OSError(98, "Address already in use") from None


def wish(
    first: int = 0, last: int = 0, *, port: int = 80, host_ip: str | None = None, protocol: int = TCP
) -> PortRequest:
    """Return a request."""
    return PortRequest(
        protocol=protocol,
        container_port=port,
        host_ip=ip_address(host_ip) if host_ip else None,
        host_port=first,
        host_port_end=max(first, last),
    )


def mapping(host_port: int, *, port: int = 80, host_ip: str | None = None, protocol: str = "tcp") -> PortMapping:
    """Return a choice."""
    return PortMapping(
        protocol=protocol,
        host_ip=ip_address(host_ip) if host_ip else None,
        host_port=host_port,
        container_port=port,
    )


def choose(
    *wishes: PortRequest,
    earlier: Collection[PortMapping] = (),
    others: Collection[PortMapping] = (),
    programs: Programs,
) -> tuple[PortMapping, ...]:
    """Return the choice where others have ports."""

    def find_owner(wanted: PortMapping) -> str | None:
        return "another's" if any(wanted.overlaps(other) for other in others) else None

    return choose_ports(wishes, tuple(earlier), find_owner, programs)


def test_a_port_as_it_is_asked_for() -> None:
    """Protocol, address and port go on as they are; the same wish twice is one."""
    wanted = wish(8080, host_ip="::1", protocol=132)
    assert choose(wanted, wanted, programs=Programs()) == (mapping(8080, host_ip="::1", protocol="sctp"),)


def test_a_range() -> None:
    """The first that nobody has, other containers, programs and this one's other ports among them."""
    chosen = choose(wish(8080, 8084), wish(8080, 8084, port=81), others=[mapping(8080)], programs=Programs(8081))
    assert [one.host_port for one in chosen] == [8082, 8083]


def test_any_port() -> None:
    """What the kernel proposes, but not what a container has, which the kernel does not know."""
    assert choose(wish(), others=[mapping(40000)], programs=Programs(proposals=[40000, 40001])) == (mapping(40001),)


def test_the_same_again() -> None:
    """An endpoint keeps what was chosen before, if it still can."""
    earlier = [mapping(40005), mapping(8083)]
    assert choose(wish(), earlier=earlier, programs=Programs()) == (mapping(40005),)
    assert choose(wish(8080, 8084), earlier=earlier, programs=Programs()) == (mapping(8083),)
    assert choose(wish(), earlier=earlier[:1], programs=Programs(40005, proposals=[40006])) == (mapping(40006),)
    assert choose(wish(port=81), earlier=earlier, programs=Programs(proposals=[40007])) == (mapping(40007, port=81),)


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ([wish(8080)], "port 8080/tcp cannot be published: another's"),
        ([wish(8081)], "port 8081/tcp cannot be published: Address already in use"),
        ([wish(8080, 8081)], "no port of 8080-8081/tcp can be published; the last: Address already in use"),
        ([wish(9000), wish(9000, port=81)], "published twice"),
        ([wish(9000, host_ip="::1"), wish(9000, host_ip="::", port=81)], "[::]:9000/tcp cannot be published"),
        ([wish()], "no port of the host is free for 80/tcp: Address already in use"),
        ([wish(9000, protocol=1)], "IP protocol 1"),
    ],
)
def test_refused(wishes: list[PortRequest], said: str) -> None:
    """It says which port, and why not."""
    with pytest.raises(Refused) as caught:
        choose(*wishes, others=[mapping(8080)], programs=Programs(8081))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (None, None, True),
        (None, "10.0.0.1", True),
        ("0.0.0.0", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("::", "10.0.0.1", False),
        ("::", "0.0.0.0", False),
        ("::1", "::", True),
    ],
)
def test_overlaps(one: str | None, other: str | None, *, meet: bool) -> None:
    """A port of one address is another's than that of another address, and not than that of all."""
    assert mapping(80, host_ip=one).overlaps(mapping(80, host_ip=other, port=81)) is meet
    assert mapping(80, host_ip=other).overlaps(mapping(80, host_ip=one)) is meet
    assert not mapping(80, host_ip=one).overlaps(mapping(81, host_ip=other))
    assert not mapping(80, host_ip=one).overlaps(mapping(80, host_ip=other, protocol="udp"))


def test_json() -> None:
    """What is stored is the capability's value."""
    chosen = (mapping(8080), mapping(8081, host_ip="fd00::1", protocol="udp"))
    assert parse_mappings({"portMappings": [one.to_json() for one in chosen], "mac": "x"}) == chosen
    assert chosen[0].to_json() == {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    assert str(chosen[1]) == "[fd00::1]:8081->80/udp"


@pytest.mark.parametrize(
    ("host_ip", "address", "refused"),
    [
        ("127.0.0.1", "10.1.0.2/24", False),
        ("0.0.0.0", "fd00::2/64", True),
        ("::1", "10.1.0.2/24", True),
        ("::", "fd00::2/64", False),
        (None, "fd00::2/64", False),
    ],
)
def test_an_address_of_the_family_that_the_container_has(host_ip: str | None, address: str, *, refused: bool) -> None:
    """`portmap` makes no rule from one family to the other, and says nothing."""
    with pytest.raises(Refused, match=r"has no IPv[46] address") if refused else nullcontext():
        refuse_other_families([wish(8080, host_ip=host_ip)], [ip_interface(address)])


def test_a_result_without_addresses() -> None:
    """`portmap` would publish nothing, and say nothing."""
    with pytest.raises(Refused, match="pass on the result"):
        refuse_other_families([wish(8080)], [])


@pytest.mark.parametrize(
    ("asked", "serves"),
    [
        (wish(8080), True),
        (wish(8000, 8100), True),
        (wish(8081, 8100), False),
        (wish(8080, protocol=17), False),
        (wish(8080, host_ip="10.0.0.1"), True),
        (wish(8080, host_ip="10.0.0.2"), False),
        (wish(), False),
    ],
)
def test_may_serve(asked: PortRequest, *, serves: bool) -> None:
    """A port is in the way of those who name it; who takes any port takes another."""
    assert mapping(8080, host_ip="10.0.0.1").may_serve(asked) is serves
