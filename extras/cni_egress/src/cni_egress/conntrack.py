# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Connections that the kernel tracks: those of an address are forgotten when its container goes, or may reach less.

Otherwise the next container with the address could go on with them.
"""

import errno
import socket
import struct
from typing import Final

from cni_egress.netlink import ACKNOWLEDGE, NESTED, NETFILTER, NetlinkError, Socket, attribute, attributes
from cni_egress.records import IpAddress

__all__ = ["forget_connections"]

_SUBSYSTEM: Final = 1 << 8
_GET: Final = _SUBSYSTEM | 1
_DELETE: Final = _SUBSYSTEM | 2
_ORIGINAL: Final = 1
_REPLY: Final = 2
_ID: Final = 12
_ZONE: Final = 18
_FILTER: Final = 25
_TUPLE_IP: Final = 1


def forget_connections(address: IpAddress) -> int:
    """Delete the tracked connections that a container began, or that others began with it; returns how many.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(NETFILTER) as netlink:
        found: dict[bytes, None] = {}
        for direction in (_ORIGINAL, _REPLY):
            found.update(dict.fromkeys(_find(netlink, address, direction)))
        for body in found:
            try:
                netlink.request(_DELETE, ACKNOWLEDGE, body)
            except NetlinkError as exc:
                if exc.errno != errno.ENOENT:  # it has ended meanwhile
                    raise
        return len(found)


def _find(netlink: Socket, address: IpAddress, direction: int) -> list[bytes]:
    """Return the deletion of each connection whose tuple of a direction has the address as its source."""
    is_four = address.version == 4  # noqa: PLR2004
    head = struct.pack(">BBH", socket.AF_INET if is_four else socket.AF_INET6, 0, 0)
    source = 1 if is_four else 3  # CTA_IP_V4_SRC, CTA_IP_V6_SRC
    wanted = attribute(source, address.packed)
    # Linux 5.8 and newer filter; older ones list everything.
    filtered = attribute(direction | NESTED, attribute(_TUPLE_IP | NESTED, wanted))
    filtered += attribute(_FILTER | NESTED, attribute(direction, struct.pack("=I", 1)))
    found = []
    for message in netlink.dump(_GET, head + filtered):
        fields = dict(attributes(message[4:]))
        addresses = dict(attributes(fields.get(direction, b""))).get(_TUPLE_IP, b"")
        if dict(attributes(addresses)).get(source) != address.packed:
            continue
        body = attribute(_ORIGINAL | NESTED, fields[_ORIGINAL])
        body += b"".join(attribute(kind, fields[kind]) for kind in (_ID, _ZONE) if kind in fields)
        found.append(head + body)
    return found
