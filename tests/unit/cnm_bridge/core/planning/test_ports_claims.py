# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Endpoints are found by their ports, and an endpoint without ports takes no memory."""

import sys

import pytest

from cni_bridge_state import EndpointId
from cnm_bridge.core.planning.ports import PortClaims, PortMapping
from tests.unit.cnm_bridge.core.planning.port_requests import mapping, request

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


def test_claims_are_idempotent() -> None:
    """Adding a claim again changes nothing."""
    one = claims(one=mapping(80))
    one.add(ONE, mapping(80))
    assert list(one.find_overlapping(mapping(80))) == [ONE]


def test_release_removes_all_claims_of_an_endpoint() -> None:
    """The memory does not grow with the number of released endpoints."""
    made = claims(two=mapping(80))
    sizes: set[int] = set()
    for number in range(1000):
        endpoint_id = EndpointId(f"{number:064x}")
        made.add(endpoint_id, mapping(80))
        made.add(endpoint_id, mapping(number + 1000))
        made.release(endpoint_id)
        made.release(endpoint_id)
        sizes.add(sys.getsizeof(made._by_port) + sys.getsizeof(made._by_endpoint))
    assert list(made.find_overlapping(mapping(80))) == [TWO]
    assert list(made.find_overlapping(mapping(1500))) == []
    assert max(sizes) < 2000  # with all endpoints it would be tens of thousands
