# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The second lock: a routing rule for each guarded link, under which a packet without the mark is unreachable.

It holds when a program has flushed all tables of nf_tables. Only packets to the host itself are not under it, because
the kernel finds local addresses first. `ip rule` shows it as
`40: from all iif agents0 fwmark 0/0x10000000 unreachable`.
"""

import errno
import socket
import struct
from typing import Final

from cni_egress.netlink import ACKNOWLEDGE, CREATE, EXCLUSIVE, NetlinkError, Socket, attribute, attributes
from cni_egress.tables import MARK

__all__ = ["locked_links", "put_lock", "remove_lock"]

_PRIORITY: Final = 40
_NEW: Final = 32
_DELETE: Final = 33
_GET: Final = 34
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_UNREACHABLE: Final = 7
_IIF, _PRIORITY_KIND, _FWMARK, _FWMASK = 3, 6, 10, 16


def put_lock(link: str) -> None:
    """Put the rule for a link in force, for both families; it may be there.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            try:
                netlink.request(_NEW, ACKNOWLEDGE | CREATE | EXCLUSIVE, _rule(family, link))
            except NetlinkError as exc:
                if exc.errno not in {errno.EEXIST, errno.EAFNOSUPPORT}:  # a kernel without IPv6 needs no rule for it
                    raise


def remove_lock(link: str) -> None:
    """Remove the rule for a link; it need not exist.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            try:
                netlink.request(_DELETE, ACKNOWLEDGE, _rule(family, link))
            except NetlinkError as exc:
                if exc.errno not in {errno.ENOENT, errno.EAFNOSUPPORT}:
                    raise


def locked_links() -> set[str]:
    """Return the links that have the rule for each family that the kernel has.

    Raises:
        NetlinkError: The kernel has refused to answer.
    """
    found = []
    with Socket(socket.NETLINK_ROUTE) as netlink:
        for family in _FAMILIES:
            rules = netlink.dump(_GET, struct.pack("=B11x", family))
            if rules:
                found.append({name for name in map(_link, rules) if name})
    return set.intersection(*found) if found else set()


def _rule(family: int, link: str) -> bytes:
    head = struct.pack("=BBBBBBBBL", family, 0, 0, 0, 0, 0, 0, _UNREACHABLE, 0)
    return (
        head
        + attribute(_IIF, link.encode() + b"\0")
        + attribute(_PRIORITY_KIND, struct.pack("=L", _PRIORITY))
        + attribute(_FWMARK, struct.pack("=L", 0))
        + attribute(_FWMASK, struct.pack("=L", MARK))
    )


def _link(rule: bytes) -> str:
    """Return the link of a rule if it is one of ours, else nothing."""
    fields = dict(attributes(rule[12:]))
    number = fields.get(_PRIORITY_KIND), fields.get(_FWMASK)
    if rule[7] != _UNREACHABLE or number != (struct.pack("=L", _PRIORITY), struct.pack("=L", MARK)):
        return ""
    return fields.get(_IIF, b"").rstrip(b"\0").decode()
