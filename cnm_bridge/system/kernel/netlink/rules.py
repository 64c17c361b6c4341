# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the policy rules that plugins made, and adds them to another namespace.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

import struct
import sys
from collections.abc import Mapping
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL
from pyroute2.netlink.rtnl import RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE

from cnm_bridge.core.link_state import Rule
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink, render_attribute, split_attributes

_HEADER: Final = struct.Struct("=8BI")  # fib_rule_hdr: the flags are last
_FIXED_FLAGS: Final = 0x2  # FIB_RULE_INVERT; the others show whether links and targets exist at the moment
_TABLE_FIELD: Final = 4
_TABLE_ELSEWHERE: Final = 252  # RT_TABLE_COMPAT: the number exceeds the header's byte, see the attribute
_FRA_PRIORITY: Final = 6
_FRA_TABLE: Final = 15
_LINK_NAMES: Final = {3, 17}  # FRA_IIFNAME, FRA_OIFNAME
_KERNELS_OWN: Final = frozenset(
    {
        (AF_INET, 0, 255),
        (AF_INET, 32766, 254),
        (AF_INET, 32767, 253),
        (AF_INET6, 0, 255),
        (AF_INET6, 32766, 254),
    }
)
"""Family, priority and table of the rules of a new namespace; they match all packets."""
_TO_TABLE: Final = 1  # FR_ACT_TO_TBL
_OF_ANY_RULE: Final = {"FRA_PRIORITY", "FRA_TABLE", "FRA_PROTOCOL", "FRA_SUPPRESS_PREFIXLEN"}
_SUPPRESSES_NOTHING: Final = b"\xff" * 4


def find_rules(netlink: Netlink) -> tuple[Rule, ...]:
    """Return the IP rules that the kernel did not make, IPv4 first, each family in the order of evaluation."""
    return tuple(
        Rule(priority=_priority(message), table=_table(message), message=_lasting(message))
        for message in netlink.dump(RTM_GETRULE, {"family": AF_UNSPEC})
        if message.field("family") in {AF_INET, AF_INET6} and not _is_kernels_own(message)
    )


def add_rule(netlink: Netlink, rule: Rule) -> None:
    """Add a rule; raise EEXIST if it exists already."""
    netlink.request_raw(RTM_NEWRULE, _complete(rule), flags=NLM_F_CREATE | NLM_F_EXCL)


def remove_rule(netlink: Netlink, rule: Rule) -> None:
    """Remove a rule; raise ENOENT if it does not exist."""
    netlink.request_raw(RTM_DELRULE, _complete(rule))


def in_sandbox(rule: Rule, old: str, new: str, tables: Mapping[int, int]) -> Rule:
    """Return the rule for a namespace where the link `old` is called `new` and tables have other numbers."""
    table = tables.get(rule.table, rule.table)
    if old == new and table == rule.table:
        return rule
    *fields, flags = _HEADER.unpack_from(rule.message)
    if table != rule.table:
        fields[_TABLE_FIELD] = table if table < 1 << 8 else _TABLE_ELSEWHERE
    rendered = _HEADER.pack(*fields, flags)
    for number, value in split_attributes(rule.message[_HEADER.size :]):
        if number in _LINK_NAMES and value.rstrip(b"\0") == old.encode():
            rendered += render_attribute(number, new.encode() + b"\0")
        elif number == _FRA_TABLE:
            rendered += render_attribute(number, table.to_bytes(4, sys.byteorder))
        else:
            rendered += render_attribute(number, value)
    return Rule(priority=rule.priority, table=table, message=rendered)


def _complete(rule: Rule) -> bytes:
    """Return a rule's message with its priority: the kernel does not report priority 0, but needs it in a request."""
    return rule.message if rule.priority else rule.message + render_attribute(_FRA_PRIORITY, bytes(4))


def _lasting(message: Message) -> bytes:
    *fields, flags = _HEADER.unpack_from(message.data)
    return _HEADER.pack(*fields, flags & _FIXED_FLAGS) + message.data[_HEADER.size :]


def _is_kernels_own(message: Message) -> bool:
    """Return whether a rule is one of the kernel's defaults; these have no selectors."""
    return (
        (message.field("family"), _priority(message), _table(message)) in _KERNELS_OWN
        and message.names() <= _OF_ANY_RULE
        and message.field("action") == _TO_TABLE
        and not message.field("flags") & _FIXED_FLAGS
        and not any(message.field(name) for name in ("src_len", "dst_len", "tos"))
        and message.find("FRA_SUPPRESS_PREFIXLEN") in {None, _SUPPRESSES_NOTHING}
    )


def _priority(message: Message) -> int:
    return message.number("FRA_PRIORITY") or 0


def _table(message: Message) -> int:
    return message.number("FRA_TABLE") or message.field("table")
