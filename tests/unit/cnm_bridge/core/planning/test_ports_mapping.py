# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Port mappings: which of them overlap, how they are stored, and which requests they serve."""

from contextlib import nullcontext
from ipaddress import ip_interface

import pytest

from cni_bridge_state import PortRequest
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.ports import parse_mappings, refuse_other_families
from tests.unit.cnm_bridge.core.planning.port_requests import mapping, request


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
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
def test_overlapping_mappings(one: str | None, other: str | None, *, overlap: bool) -> None:
    """Mappings overlap on the same address, or if one has all addresses of the family; else they are independent."""
    assert mapping(80, host_ip=one).overlaps(mapping(80, host_ip=other, port=81)) is overlap
    assert mapping(80, host_ip=other).overlaps(mapping(80, host_ip=one)) is overlap
    assert not mapping(80, host_ip=one).overlaps(mapping(81, host_ip=other))
    assert not mapping(80, host_ip=one).overlaps(mapping(80, host_ip=other, protocol="udp"))


def test_mappings_are_stored_as_capability_args() -> None:
    """The stored value is that of `portMappings`."""
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
def test_the_host_address_must_have_a_family_of_the_container(
    host_ip: str | None, address: str, *, refused: bool
) -> None:
    """`portmap` silently creates no rule from one family to the other."""
    with pytest.raises(Refused, match=r"has no IPv[46] address") if refused else nullcontext():
        refuse_other_families([request(8080, host_ip=host_ip)], [ip_interface(address)])


def test_ports_need_a_result_with_addresses() -> None:
    """Without addresses `portmap` would silently publish nothing."""
    with pytest.raises(Refused, match="pass on the result"):
        refuse_other_families([request(8080)], [])


@pytest.mark.parametrize(
    ("requested", "serves"),
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
def test_mappings_that_may_serve_a_request(requested: PortRequest, *, serves: bool) -> None:
    """A mapping conflicts with a request that names its port; a request for any port gets another one."""
    assert mapping(8080, host_ip="10.0.0.1").may_serve(requested) is serves
