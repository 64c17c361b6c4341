# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A link in a container that has IPv6 disabled."""

from ipaddress import ip_interface, ip_network

from cnm_bridge.core.link.endpoint_replies import describe_join
from cnm_bridge.core.link.expected_link import DELEGATES, describe_expected
from cnm_bridge.core.link.plan_sandbox import disables_ipv6, plan_sandbox, sets_ipv6, uses_ipv6, without_ipv6
from cnm_bridge.core.link_state import Snapshot, Sysctl


def dual_stack() -> Snapshot:
    """Return a link with addresses and settings of both families."""
    addresses = [ip_interface("10.1.0.2/24"), ip_interface("fd00::2/64")]
    sysctls = [
        Sysctl(name="net/ipv4/conf/eth0/arp_notify", value="1"),
        Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value="0"),
    ]
    return describe_expected(DELEGATES["bridge"], "eth0", addresses, None, sysctls)


def test_what_is_left() -> None:
    """IPv4 alone: in the link's state, in the reply to Join, and in the plan for the sandbox, which disables IPv6."""
    left = without_ipv6(dual_stack())
    assert uses_ipv6(dual_stack())
    assert not uses_ipv6(left)
    assert sets_ipv6(dual_stack())
    assert [address.address for address in left.addresses] == [ip_interface("10.1.0.2/24")]
    assert [route.destination for route in left.routes] == [ip_network("10.1.0.0/24")]
    joined = describe_join(left, "link", prefix="eth", internal=False)
    assert (joined.gateway_ipv6, joined.routes) == (None, ())
    assert plan_sandbox(left, internal=False).parts == (
        "sysctl net.ipv4.conf.eth0.arp_notify",
        "sysctl net.ipv6.conf.eth0.disable_ipv6",
    )
    assert left.sysctls[-1] == Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value="1")


def test_it_can_be_repeated() -> None:
    """The container may be connected again with the same record."""
    assert without_ipv6(without_ipv6(dual_stack())) == without_ipv6(dual_stack())


def test_the_setting_of_the_link() -> None:
    """It shows that the link has no IPv6; settings that plugins made with IPv6 do not."""
    assert disables_ipv6(without_ipv6(dual_stack()))
    assert not disables_ipv6(dual_stack())
