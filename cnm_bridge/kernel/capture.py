# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reading the snapshot of a link out of its namespace."""

from errno import EOPNOTSUPP
from ipaddress import ip_network
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink.rtnl import RTM_GETROUTE

from cnm_bridge.kernel.addresses import find_addresses
from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.message import Message
from cnm_bridge.kernel.netlink import Netlink
from cnm_bridge.kernel.snapshot import Route, Snapshot

__all__ = ["capture", "find_routes", "parse_route"]

_LOCAL_TABLE: Final = 255
_RTNH_F_ONLINK: Final = 4
_DEFAULTS: Final[dict[int, str]] = {AF_INET: "0.0.0.0", AF_INET6: "::"}  # noqa: S104 - a destination, nothing listens there
_BEYOND: Final = {
    "RTA_MULTIPATH": "several next hops",
    "RTA_ENCAP": "an encapsulation",
    "RTA_SRC": "a source prefix",
}


def capture(netlink: Netlink, link: Link) -> Snapshot:
    """Give the snapshot of a link in the conversation's namespace.

    Raises:
        OSError: The kernel refused; EOPNOTSUPP for a route that a snapshot cannot hold, in the words of `parse_route`.
    """
    return Snapshot(link=link.state, addresses=find_addresses(netlink, link), routes=find_routes(netlink, link))


def find_routes(netlink: Netlink, link: Link) -> tuple[Route, ...]:
    """Give the routes through a link in every table but `local`, IPv4 first; errors as in `capture`."""
    # the kernel picks those of the link; one dump for all families does without IPv6 where that is off
    messages = netlink.dump(RTM_GETROUTE, {"family": AF_UNSPEC}, (("RTA_OIF", link.index),))
    return tuple(
        parse_route(message)
        for message in messages
        if message.field("family") in _DEFAULTS and message.field("table") != _LOCAL_TABLE
    )


def parse_route(message: Message) -> Route:
    """Read what the kernel tells about a route, IPv4 or IPv6.

    Raises:
        OSError: EOPNOTSUPP; it has several next hops, an encapsulation or a source prefix. Without these it would be
            another route.
    """
    destination = message.address("RTA_DST") or _DEFAULTS[message.field("family")]
    network = ip_network((destination, message.field("dst_len")))
    for attribute, what in _BEYOND.items():
        if attribute in message:
            raise OSError(EOPNOTSUPP, f"route {network} has {what}, which cannot be carried into another namespace")
    metrics = message.nested("RTA_METRICS")
    return Route(
        destination=network,
        gateway=message.address("RTA_GATEWAY") or message.address("RTA_VIA"),
        table=message.number("RTA_TABLE") or message.field("table"),
        metric=message.number("RTA_PRIORITY") or 0,
        type=message.field("type"),
        scope=message.field("scope"),
        protocol=message.field("proto"),
        source=message.address("RTA_PREFSRC"),
        onlink=bool(message.field("flags") & _RTNH_F_ONLINK),
        mtu=None if metrics is None else metrics.number("RTAX_MTU"),
        advmss=None if metrics is None else metrics.number("RTAX_ADVMSS"),
    )
