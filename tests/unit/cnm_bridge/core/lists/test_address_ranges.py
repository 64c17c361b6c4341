# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which pools of Docker's IPAM a list can use: those that it has; one that Docker added by itself is ignored."""

from ipaddress import ip_network

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.lists.address_ranges import find_pool_problem
from tests.records import list_of

IPV6 = "fd22::/64"


def network(*subnets: str) -> NetworkConfigurationList:
    """Return a list whose host-local has these subnets."""
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets]}
    document: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge", "ipam": ipam}]}
    return NetworkConfigurationList.from_document(document)


def pools(*subnets: str) -> tuple[PoolRecord, ...]:
    """Return pools of Docker's IPAM."""
    return tuple(PoolRecord(subnet=ip_network(subnet), gateway=None) for subnet in subnets)


@pytest.mark.parametrize("given", ["10.9.0.0/16", "172.16.0.0/16", "172.18.0.0/24", "192.168.0.0/24", "192.168.8.0/21"])
def test_a_pool_that_the_user_gave(given: str) -> None:
    """The list must have it."""
    chosen = pools(given, IPV6)
    problem = find_pool_problem(network(IPV6), chosen)
    assert problem is not None
    assert given in problem.text


def test_a_list_with_addresses_of_that_family() -> None:
    """Docker's choice would give the container other addresses than the plugins."""
    dual = network("10.22.0.0/16", IPV6)
    problem = find_pool_problem(dual, pools("172.18.0.0/16", IPV6))
    assert problem is not None
    assert "172.18.0.0/16" in problem.text


def test_ipv6_is_always_asked_for() -> None:
    """Docker gives a network IPv6 only on request, so a list without it cannot be used."""
    assert find_pool_problem(network("10.22.0.0/16"), pools("10.22.0.0/16", "fd11::/64")) is not None


def test_a_list_without_ranges() -> None:
    """Its families are not known, so the result of ADD is checked instead."""
    plugin: JsonObject = {"type": "bridge", "ipam": {"type": "static"}}
    listed = list_of(plugin)
    assert find_pool_problem(listed, pools("172.18.0.0/16")) is None
