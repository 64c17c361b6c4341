# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a policy's chain accepts, in words: the order of its rules."""

from ipaddress import ip_address, ip_network

import pytest

from cni_egress.judgement import find_permission
from cni_egress.policy import Policy

POLICY = Policy.parse(
    ["0.0.0.0/0:443/tcp", "10.0.5.7", "169.254.169.254:80/tcp", "host:8080/tcp", "[2001:db8::/32]:1-9/udp"]
)
SUBNETS = (ip_network("10.66.0.0/24"),)


@pytest.mark.parametrize(
    ("address", "protocol", "port", "expected"),
    [
        ("192.0.2.1", 6, 443, "0.0.0.0/0:443/tcp"),
        ("192.0.2.1", 17, 443, ""),
        ("10.0.5.7", 1, 0, "10.0.5.7"),
        ("10.66.0.9", 17, 1, "containers of the network reach each other"),
        ("169.254.169.254", 6, 443, ""),
        ("169.254.169.254", 6, 80, "169.254.169.254:80/tcp"),
        ("2001:db8::1", 17, 9, "[2001:db8::/32]:1-9/udp"),
        ("2001:db8::1", 17, 10, ""),
        ("192.0.2.1", 17, 53, ""),
    ],
)
def test_permissions(address: str, protocol: int, port: int, expected: str) -> None:
    """The entry that lets it pass; a metadata service needs an entry of its own."""
    to = ip_address(address)
    assert find_permission(POLICY, SUBNETS, to, protocol, port, is_hosts_own=False) == expected


def test_the_host() -> None:
    """Only its own entries open it."""
    to = ip_address("192.0.2.1")
    assert find_permission(POLICY, SUBNETS, to, 6, 443, is_hosts_own=True) == ""
    assert find_permission(POLICY, SUBNETS, to, 6, 8080, is_hosts_own=True) == "host:8080/tcp"


def test_queries() -> None:
    """They go to the responder, wherever they are sent, if the policy has names."""
    policy = Policy.parse(["www.example.com"])
    to = ip_address("192.0.2.1")
    assert find_permission(policy, SUBNETS, to, 17, 53, is_hosts_own=True) == "queries go to cni-egress"
    assert find_permission(policy, SUBNETS, to, 6, 443, is_hosts_own=False) == ""
