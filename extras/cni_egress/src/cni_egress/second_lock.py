# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The second lock: a routing rule for each guarded link, under which a packet without the mark is dropped.

It holds when a program has flushed all tables of nf_tables. Only packets to the host itself are not under it, because
the kernel finds local addresses first. `ip rule` shows it as
`40: from all iif agents0 fwmark 0/0x10000000 blackhole`. It drops in silence: an ICMP error to a false source would
have the packet's content in it.
"""

import errno
import socket
import struct
from collections.abc import Collection
from typing import Final

from cni_egress.netlink import ACKNOWLEDGE, CREATE, EXCLUSIVE, NetlinkError, Socket, attribute, attributes

__all__ = ["links_with_rule", "locked_links", "put_lock", "remove_locks"]

_PRIORITY: Final = 40
_NEW: Final = 32
_DELETE: Final = 33
_GET: Final = 34
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_BLACKHOLE: Final = 6
_HEAD: Final = struct.Struct("=B11x")
_ALL_BITS: Final = 0xFFFFFFFF
_IIF, _PRIORITY_KIND, _FWMARK, _FWMASK = 3, 6, 10, 16


def put_lock(link: str, mark: int) -> None:
    """Put the rule for a link in force, for both families, in place of one with another mark; it may be there.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            for rule in netlink.dump(_GET, _HEAD.pack(family)):
                found = _parse(rule)
                if found is not None and found[0] == link and found[1] != mark:
                    netlink.request(_DELETE, ACKNOWLEDGE, _rule(family, *found))
            try:
                netlink.request(_NEW, ACKNOWLEDGE | CREATE | EXCLUSIVE, _rule(family, link, mark))
            except NetlinkError as exc:
                if exc.errno not in {errno.EEXIST, errno.EAFNOSUPPORT}:  # a kernel without IPv6 needs no rule for it
                    raise


def remove_locks(links: Collection[str]) -> None:
    """Remove the rules for links; there may be none, or that of one family only.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            for found in map(_parse, netlink.dump(_GET, _HEAD.pack(family))):
                if found is not None and found[0] in links:
                    netlink.request(_DELETE, ACKNOWLEDGE, _rule(family, *found))


def locked_links(mark: int) -> set[str]:
    """Return the links that have the rule with a mark, for each family that the kernel has.

    Raises:
        NetlinkError: The kernel has refused to answer.
    """
    found = [{link for link, its_mark in rules if its_mark == mark} for rules in _dump()]
    return set.intersection(*found) if found else set()


def links_with_rule() -> set[str]:
    """Return the links that have a rule with any mark, for one family at least.

    Raises:
        NetlinkError: The kernel has refused to answer.
    """
    return {link for rules in _dump() for link, _ in rules}


def _dump() -> list[list[tuple[str, int]]]:
    """Return links and marks of our rules, for each family that has any rule."""
    with Socket(socket.NETLINK_ROUTE) as netlink:
        dumped = [list(netlink.dump(_GET, _HEAD.pack(family))) for family in _FAMILIES]
    return [[one for one in map(_parse, rules) if one is not None] for rules in dumped if rules]


def foreign_marks(mark: int) -> list[tuple[int, int, int]]:
    """Return priority, mark and mask of the rules of other programs that look at the bit of ours, in order.

    Raises:
        NetlinkError: The kernel has refused to answer.
    """
    found = set()
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            for rule in netlink.dump(_GET, _HEAD.pack(family)):
                fields = dict(attributes(rule[12:]))
                value, mask, priority = (
                    struct.unpack("=L", fields.get(kind, bytes(4)))[0] for kind in (_FWMARK, _FWMASK, _PRIORITY_KIND)
                )
                # Without a mask a rule compares all bits, which no program means for its own packets only.
                if mask & mark and mask != _ALL_BITS and _parse(rule) is None:
                    found.add((priority, value, mask))
    return sorted(found)


def _rule(family: int, link: str, mark: int) -> bytes:
    head = struct.pack("=BBBBBBBBL", family, 0, 0, 0, 0, 0, 0, _BLACKHOLE, 0)
    return (
        head
        + attribute(_IIF, link.encode() + b"\0")
        + attribute(_PRIORITY_KIND, struct.pack("=L", _PRIORITY))
        + attribute(_FWMARK, struct.pack("=L", 0))
        + attribute(_FWMASK, struct.pack("=L", mark))
    )


def _parse(rule: bytes) -> tuple[str, int] | None:
    """Return the link and the mark of a rule; None if it is not one of ours."""
    fields = dict(attributes(rule[12:]))
    if _IIF not in fields or _FWMASK not in fields:
        return None
    mark = struct.unpack("=L", fields[_FWMASK])[0]
    is_ours = (
        rule[1:3] == bytes(2)  # without a destination and a source
        and rule[7] == _BLACKHOLE
        and fields.get(_PRIORITY_KIND) == struct.pack("=L", _PRIORITY)
        and fields.get(_FWMARK, bytes(4)) == bytes(4)
        and mark.bit_count() == 1
    )
    return (fields[_IIF].rstrip(b"\0").decode(), mark) if is_ours else None
