# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which endpoint has a port is found by the port, and nothing is kept of endpoints that have none."""

import sys

import pytest

from cnm_bridge.planning.port_claims import PortClaims
from cnm_bridge.planning.port_mappings import PortMapping
from state import EndpointId
from tests.unit.cnm_bridge.planning.port_requests import mapping, request

ONE, TWO = EndpointId("1" * 64), EndpointId("2" * 64)


def claims(**ports: PortMapping) -> PortClaims:
    """Make claims of endpoints `one` and `two`."""
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
def test_overlapping(wanted: PortMapping, found: list[EndpointId]) -> None:
    """Endpoints are found that have the port on an address that the other one includes."""
    both = claims(one=mapping(80, host_ip="10.0.0.1"), two=mapping(80, host_ip="10.0.0.2"))
    assert list(both.find_overlapping(wanted)) == found


def test_serving() -> None:
    """A port is of a request's range only if protocol and address fit as well."""
    one = claims(one=mapping(80, host_ip="10.0.0.1"))
    assert list(one.find_serving(request(79, 81), 80)) == [ONE]
    assert list(one.find_serving(request(79, 81), 79)) == []
    assert list(one.find_serving(request(80, host_ip="10.0.0.2"), 80)) == []
    assert list(one.find_serving(request(80, protocol=17), 80)) == []
    assert list(one.find_serving(request(80, protocol=1), 80)) == []


def test_the_same_port_of_two_endpoints() -> None:
    """Each gives it up by itself."""
    both = claims(one=mapping(80), two=mapping(80))
    both.discard(ONE, mapping(80))
    both.discard(ONE, mapping(80))
    assert list(both.find_overlapping(mapping(80))) == [TWO]
    assert (list(both.of(ONE)), list(both.of(TWO))) == ([], [mapping(80)])


def test_a_port_is_claimed_once() -> None:
    """Repeated, nothing changes."""
    one = claims(one=mapping(80))
    one.add(ONE, mapping(80))
    assert list(one.find_overlapping(mapping(80))) == [ONE]


def test_release() -> None:
    """Nothing is left of an endpoint, however many others there were."""
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
    assert max(sizes) < 2000  # some dozen bytes for each, if they stayed
