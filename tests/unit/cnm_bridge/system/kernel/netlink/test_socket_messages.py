# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""rtnetlink messages have the bytes of the kernel's headers, and those that pyroute2 sends."""

from ipaddress import ip_address

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from cnm_bridge.system.kernel.netlink.socket import Message, render_message

NETLINK_HEADER_BYTES = 16


def by_pyroute2(message: ifinfmsg | ifaddrmsg | rtmsg) -> bytes:
    """Return what pyroute2 would send, without the netlink header."""
    message.encode()
    return bytes(message.data[NETLINK_HEADER_BYTES:])


def test_messages_equal_those_of_pyroute2() -> None:
    """Numbers, strings and nested attributes are encoded alike."""
    theirs = ifinfmsg()
    theirs.update(index=3, flags=0, change=1)
    theirs["attrs"] = [
        ("IFLA_IFNAME", "eth0"),
        ("IFLA_NET_NS_FD", 9),
        ("IFLA_PROP_LIST", {"attrs": [("IFLA_ALT_IFNAME", "a-longer-name-than-fifteen")]}),
    ]
    ours = (
        ("IFLA_IFNAME", "eth0"),
        ("IFLA_NET_NS_FD", 9),
        ("IFLA_PROP_LIST", (("IFLA_ALT_IFNAME", "a-longer-name-than-fifteen"),)),
    )
    assert render_message(ifinfmsg, {"index": 3, "change": 1}, ours) == by_pyroute2(theirs)


def test_messages_of_pyroute2_are_parsed() -> None:
    """Fields, numbers, addresses and nested attributes are read; a missing attribute is None."""
    theirs = rtmsg()
    theirs.update(family=2, dst_len=16, table=254, scope=253, flags=4)
    theirs["attrs"] = [
        ("RTA_DST", "10.4.0.0"),
        ("RTA_PRIORITY", 5),
        ("RTA_VIA", {"family": 10, "addr": "fe80::1"}),
        ("RTA_METRICS", {"attrs": [("RTAX_MTU", 1400)]}),
    ]
    message = Message(rtmsg, by_pyroute2(theirs))
    assert [message.field(name) for name in ("family", "dst_len", "table", "scope", "flags")] == [2, 16, 254, 253, 4]
    assert message.address("RTA_DST") == ip_address("10.4.0.0")
    assert message.address("RTA_VIA") == ip_address("fe80::1")
    assert message.number("RTA_PRIORITY") == 5
    metrics = message.nested("RTA_METRICS")
    assert metrics is not None
    assert metrics.number("RTAX_MTU") == 1400
    assert metrics.number("RTAX_ADVMSS") is None
    assert "RTA_PRIORITY" in message
    assert "RTA_OIF" not in message
    assert message.address("RTA_GATEWAY") is None
    assert message.nested("RTA_MULTIPATH") is None


def test_a_repeated_attribute() -> None:
    """`texts` returns all its values in order, `text` the first."""
    names = (("IFLA_PROP_LIST", (("IFLA_ALT_IFNAME", "one"), ("IFLA_ALT_IFNAME", "two"))),)
    properties = Message(ifinfmsg, render_message(ifinfmsg, {}, names)).nested("IFLA_PROP_LIST")
    assert properties is not None
    assert properties.texts("IFLA_ALT_IFNAME") == ("one", "two")
    assert properties.text("IFLA_ALT_IFNAME") == "one"


def test_an_unknown_attribute_name_is_an_error() -> None:
    """A misspelled name is not treated as a missing attribute."""
    with pytest.raises(KeyError):
        Message(ifinfmsg, render_message(ifinfmsg, {}, ())).number("IFLA_MTUU")
