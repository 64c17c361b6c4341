# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Port mappings and claims: which overlap, how they are stored, and which requests they serve."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_interface
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, PortRequest
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.ports import (
    PortClaims,
    PortMapping,
    idle_without_ports,
    parse_mappings,
    plugins_without_delete,
    refuse_other_families,
)
from tests.records import endpoint, list_of
from tests.unit.cnm_bridge.core.planning.port_requests import mapping, request

BRIDGE: Final = {"type": "bridge"}
PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}}


@pytest.mark.parametrize(
    ("plugins", "idle"),
    [
        ([BRIDGE, PORTMAP, {"type": "firewall"}], {1}),
        ([BRIDGE, {"type": "bandwidth"}, {**PORTMAP, "snat": False}], {2}),
        ([BRIDGE, {**PORTMAP, "markMasqBit": 5}], set()),
        ([BRIDGE, {**PORTMAP, "type": "publisher"}], set()),
        ([BRIDGE, {"type": "portmap"}], set()),
        ([PORTMAP], set()),
    ],
)
def test_plugins_without_work(plugins: Sequence[JsonObject], idle: set[int]) -> None:
    """Only `portmap` with the capability, after the first plugin, and with nothing that it could refuse."""
    assert idle_without_ports(list_of(*plugins)) == idle


@pytest.mark.parametrize(
    ("capability_args", "deleted", "done"),
    [({}, (), {1}), ({}, (2,), {1, 2}), ({"portMappings": [mapping(80).to_json()]}, (2,), {2})],
)
def test_plugins_without_delete(capability_args: JsonObject, deleted: tuple[int, ...], done: set[int]) -> None:
    """Those whose DEL has completed, and `portmap` until ports are stored."""
    record = endpoint("e" * 64, plugins=[BRIDGE, PORTMAP, {"type": "firewall"}], capability_args=capability_args)
    assert plugins_without_delete(replace(record, deleted=deleted)) == done


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


ONE, TWO = EndpointId("1" * 64), EndpointId("2" * 64)


def claims(**ports: PortMapping) -> PortClaims:
    """Return claims of endpoints `one` and `two`."""
    made = PortClaims()
    for name, port in ports.items():
        made.add({"one": ONE, "two": TWO}[name], port)
    return made


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (mapping(80), [ONE, TWO]),
        (mapping(80, host_ip="10.0.0.1"), [ONE]),
        (mapping(80, host_ip="10.0.0.3"), []),
        (mapping(80, protocol="udp"), []),
        (mapping(81), []),
    ],
)
def test_overlapping_claims_are_found(wanted: PortMapping, found: list[EndpointId]) -> None:
    """They have the port on the same address, or one of them on all addresses."""
    both = claims(one=mapping(80, host_ip="10.0.0.1"), two=mapping(80, host_ip="10.0.0.2"))
    assert list(both.find_overlapping(wanted)) == found


def test_claims_that_serve_a_request_are_found() -> None:
    """Port, protocol and address must match the request."""
    one = claims(one=mapping(80, host_ip="10.0.0.1"))
    assert list(one.find_serving(request(79, 81), 80)) == [ONE]
    assert list(one.find_serving(request(79, 81), 79)) == []
    assert list(one.find_serving(request(80, host_ip="10.0.0.2"), 80)) == []
    assert list(one.find_serving(request(80, protocol=17), 80)) == []
    assert list(one.find_serving(request(80, protocol=1), 80)) == []


def test_two_endpoints_may_claim_one_port() -> None:
    """Discarding one claim keeps the other."""
    both = claims(one=mapping(80), two=mapping(80))
    both.discard(ONE, mapping(80))
    both.discard(ONE, mapping(80))
    assert list(both.find_overlapping(mapping(80))) == [TWO]
    assert (list(both.of(ONE)), list(both.of(TWO))) == ([], [mapping(80)])


def test_release_removes_all_claims_of_an_endpoint() -> None:
    """Releasing twice changes nothing more."""
    both = claims(one=mapping(80), two=mapping(80))
    both.add(ONE, mapping(81))
    for _ in range(2):
        both.release(ONE)
    assert list(both.find_overlapping(mapping(80))) == [TWO]
    assert list(both.find_overlapping(mapping(81))) == []
