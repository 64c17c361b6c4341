# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port of the host leads into a container; two may be for the same packets."""

from contextlib import nullcontext
from ipaddress import ip_interface

import pytest

from cnm_bridge.errors import Refused
from cnm_bridge.planning.port_mappings import parse_mappings, refuse_other_families
from cnm_bridge.wire import PortRequest
from tests.unit.cnm_bridge.planning.port_requests import mapping, request


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
    assert tuple(parse_mappings({"portMappings": [one.to_json() for one in chosen], "mac": "x"})) == chosen
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
        refuse_other_families([request(8080, host_ip=host_ip)], [ip_interface(address)])


def test_a_result_without_addresses() -> None:
    """`portmap` would publish nothing, and say nothing."""
    with pytest.raises(Refused, match="pass on the result"):
        refuse_other_families([request(8080)], [])


@pytest.mark.parametrize(
    ("asked", "serves"),
    [
        (request(8080), True),
        (request(8000, 8100), True),
        (request(8081, 8100), False),
        (request(8080, protocol=17), False),
        (request(8080, host_ip="10.0.0.1"), True),
        (request(8080, host_ip="10.0.0.2"), False),
        (request(), False),
    ],
)
def test_may_serve(asked: PortRequest, *, serves: bool) -> None:
    """A port is in the way of those who name it; who takes any port takes another."""
    assert mapping(8080, host_ip="10.0.0.1").may_serve(asked) is serves
