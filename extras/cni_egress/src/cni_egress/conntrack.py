# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Connections that the kernel tracks: those of an address are forgotten when its container goes, or may reach less.

Otherwise the next container with the address could go on with them. What a container has reached lately is read from
them, too: they cost no packet anything that it does not cost already.
"""

import errno
import socket
import struct
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from cni_egress.netlink import ACKNOWLEDGE, NESTED, NETFILTER, NetlinkError, Socket, attribute, attributes
from cni_egress.records import IpAddress

__all__ = ["Connection", "count_connections", "forget_connections"]

_SUBSYSTEM: Final = 1 << 8
_GET: Final = _SUBSYSTEM | 1
_DELETE: Final = _SUBSYSTEM | 2
_ORIGINAL: Final = 1
_REPLY: Final = 2
_ID: Final = 12
_ZONE: Final = 18
_FILTER: Final = 25
_TUPLE_IP: Final = 1
_TUPLE_SERVICE: Final = 2


@dataclass(frozen=True, slots=True)
class Connection:
    """A tracked connection that a container has begun.

    Attributes:
        destination: Where it went, before any translation of addresses.
        protocol: The number of its protocol.
        port: The port, 0 if the protocol has none.
    """

    destination: IpAddress
    protocol: int
    port: int


def count_connections(sources: Container[IpAddress]) -> Counter[tuple[IpAddress, Connection]]:
    """Return how many tracked connections some addresses have begun, by the address and where they went.

    A packet that was refused has none. What has ended is tracked for seconds to minutes.

    Args:
        sources: The addresses.

    Raises:
        NetlinkError: The kernel has refused.
    """
    with Socket(NETFILTER) as netlink:
        heads = (struct.pack(">BBH", family, 0, 0) for family in (socket.AF_INET, socket.AF_INET6))
        messages = (message for head in heads for message in netlink.dump(_GET, head))
        parsed = (_parse(dict(attributes(message[4:])), _ORIGINAL) for message in messages)
        return Counter(one for one in parsed if one[0] in sources)


def forget_connections(netlink: Socket, address: IpAddress, stays: Callable[[Connection], bool] | None = None) -> int:
    """Delete tracked connections of a container; returns how many.

    Args:
        netlink: A socket of netfilter. Closing one may wait for the kernel for milliseconds, so the caller has one.
        address: Its address.
        stays: Says which of those that it has begun stay; those that others began with it stay as well. None: all are
            deleted.

    Raises:
        NetlinkError: The kernel has refused.
    """
    found: dict[bytes, None] = {}
    for direction in (_ORIGINAL, _REPLY) if stays is None else (_ORIGINAL,):
        found.update(dict.fromkeys(_find(netlink, address, direction, stays)))
    for body in found:
        try:
            netlink.request(_DELETE, ACKNOWLEDGE, body)
        except NetlinkError as exc:
            if exc.errno != errno.ENOENT:  # it has ended meanwhile
                raise
    return len(found)


def _find(
    netlink: Socket, address: IpAddress, direction: int, stays: Callable[[Connection], bool] | None
) -> list[bytes]:
    """Return the deletion of each connection whose tuple of a direction has the address as its source."""
    is_four = address.version == 4  # noqa: PLR2004
    head = struct.pack(">BBH", socket.AF_INET if is_four else socket.AF_INET6, 0, 0)
    wanted = attribute(1 if is_four else 3, address.packed)  # CTA_IP_V4_SRC, CTA_IP_V6_SRC
    # Linux 5.8 and newer filter; older ones list everything.
    filtered = attribute(direction | NESTED, attribute(_TUPLE_IP | NESTED, wanted))
    filtered += attribute(_FILTER | NESTED, attribute(direction, struct.pack("=I", 1)))
    found = []
    for message in netlink.dump(_GET, head + filtered):
        fields = dict(attributes(message[4:]))
        source, connection = _parse(fields, direction)
        if source != address or (stays is not None and stays(connection)):
            continue
        body = attribute(_ORIGINAL | NESTED, fields[_ORIGINAL])
        body += b"".join(attribute(kind, fields[kind]) for kind in (_ID, _ZONE) if kind in fields)
        found.append(head + body)
    return found


def _parse(fields: Mapping[int, bytes], direction: int) -> tuple[IpAddress, Connection]:
    """Return the source of a direction of a tracked connection, and where that goes."""
    tuple_ = dict(attributes(fields[direction]))
    addresses = dict(attributes(tuple_[_TUPLE_IP]))
    source, target = (addresses.get(four) or addresses[four + 2] for four in (1, 2))  # CTA_IP_V4_SRC … CTA_IP_V6_DST
    service = dict(attributes(tuple_.get(_TUPLE_SERVICE, b"")))
    port = int.from_bytes(service.get(3, b""), "big")
    return ip_address(source), Connection(ip_address(target), service.get(1, b"\0")[0], port)
