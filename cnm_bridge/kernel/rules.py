# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Policy rules of a namespace: find those that somebody made, and make them in another namespace.

Every function works in the namespace of the conversation it is given and raises `OSError` where the kernel refuses.
"""

import struct
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL
from pyroute2.netlink.rtnl import RTM_GETRULE, RTM_NEWRULE

from cnm_bridge.kernel.carried import Rule
from cnm_bridge.kernel.message import Message
from cnm_bridge.kernel.netlink import Netlink

__all__ = ["add_rule", "find_rules", "for_link"]

_HEADER: Final = struct.Struct("=8BI")  # fib_rule_hdr: the flags are last
_FIXED_FLAGS: Final = 0x2  # FIB_RULE_INVERT; the others tell whether links and targets exist at the moment
_ATTRIBUTE: Final = struct.Struct("=HH")
_LINK_NAMES: Final = {3, 17}  # FRA_IIFNAME, FRA_OIFNAME
_KERNELS_OWN: Final = {
    (AF_INET, 0, 255),
    (AF_INET, 32766, 254),
    (AF_INET, 32767, 253),
    (AF_INET6, 0, 255),
    (AF_INET6, 32766, 254),
}
"""Family, priority and table of the rules that a new namespace has."""


def find_rules(netlink: Netlink) -> tuple[Rule, ...]:
    """Give the IP rules that the kernel did not make itself, IPv4 first, those asked first before others."""
    rules = []
    for message in netlink.dump(RTM_GETRULE, {"family": AF_UNSPEC}):
        family = message.field("family")
        priority, table = message.number("FRA_PRIORITY") or 0, message.number("FRA_TABLE") or message.field("table")
        if family in {AF_INET, AF_INET6} and (family, priority, table) not in _KERNELS_OWN:
            rules.append(Rule(priority=priority, table=table, message=_lasting(message)))
    return tuple(rules)


def add_rule(netlink: Netlink, rule: Rule) -> None:
    """Add a rule; EEXIST where there is the same already."""
    netlink.request_raw(RTM_NEWRULE, rule.message, flags=NLM_F_CREATE | NLM_F_EXCL)


def for_link(rule: Rule, old: str, new: str) -> Rule:
    """Give the rule as it is for a link that was called `old` and is called `new`."""
    if old == new:
        return rule
    data, start = rule.message, _HEADER.size
    rendered = data[:start]
    while start < len(data):
        length, number = _ATTRIBUTE.unpack_from(data, start)
        value = data[start + _ATTRIBUTE.size : start + length]
        if number in _LINK_NAMES and value.rstrip(b"\0") == old.encode():
            value = new.encode() + b"\0"
        rendered += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), number) + value + bytes(-len(value) % 4)
        start += (length + 3) & ~3
    return Rule(priority=rule.priority, table=rule.table, message=rendered)


def _lasting(message: Message) -> bytes:
    *fields, flags = _HEADER.unpack_from(message.data)
    return _HEADER.pack(*fields, flags & _FIXED_FLAGS) + message.data[_HEADER.size :]
