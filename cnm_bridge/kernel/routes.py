# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Routes through a link: read, add, replace, remove.

Every function works in the namespace of the conversation it is given and raises `OSError` where the kernel refuses.
"""

import sys
from ipaddress import IPv6Address, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE

from cnm_bridge.kernel.errors import NotCarriable
from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.message import Message, Wanted
from cnm_bridge.kernel.netlink import Netlink
from cnm_bridge.kernel.snapshot import MAIN_TABLE, IpAddress, IpNetwork, Route

__all__ = ["add_route", "find_routes", "has_default", "parse_route", "remove_route", "replace_route"]

_LOCAL_TABLE: Final = 255
_RTNH_F_ONLINK: Final = 4
_DEFAULTS: Final[dict[int, str]] = {AF_INET: "0.0.0.0", AF_INET6: "::"}  # noqa: S104 - a destination, nothing listens there
_BEYOND: Final = {
    "RTA_MULTIPATH": "several next hops",
    "RTA_ENCAP": "an encapsulation",
    "RTA_SRC": "a source prefix",
}
_METRICS: Final = {"RTAX_MTU", "RTAX_ADVMSS"}


def find_routes(netlink: Netlink, link: Link) -> tuple[Route, ...]:
    """Give the routes through a link in every table but `local`, IPv4 first; errors as in `parse_route`, too."""
    # the kernel picks those of the link; one dump for all families does without IPv6 where that is off
    messages = netlink.dump(RTM_GETROUTE, {"family": AF_UNSPEC}, (("RTA_OIF", link.index),))
    return tuple(
        parse_route(message)
        for message in messages
        if message.field("family") in _DEFAULTS and message.field("table") != _LOCAL_TABLE
    )


def has_default(netlink: Netlink, destination: IpNetwork) -> bool:
    """Tell whether the main table has a default route of the destination's family, through whichever link."""
    family = _family(destination)
    messages = netlink.dump(RTM_GETROUTE, {"family": family}, (("RTA_TABLE", MAIN_TABLE),))
    return any(message.field("dst_len") == 0 and message.field("family") == family for message in messages)


def parse_route(message: Message) -> Route:
    """Read what the kernel tells about a route, IPv4 or IPv6.

    Raises:
        NotCarriable: It has several next hops, an encapsulation, or whatever else a `Route` has no place for. Without
            these it would be another route.
    """
    destination = message.address("RTA_DST") or _DEFAULTS[message.field("family")]
    network = ip_network((destination, message.field("dst_len")))
    metrics = message.nested("RTA_METRICS")
    beyond = [what for attribute, what in _BEYOND.items() if attribute in message]
    if message.field("tos"):
        beyond.append("a type of service")
    if metrics is not None and not metrics.names() <= _METRICS:
        beyond.append("metrics beyond MTU and MSS")
    if beyond:
        raise NotCarriable(f"route {network} with {' and '.join(beyond)}")
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


def add_route(netlink: Netlink, link: Link, route: Route) -> None:
    """Add a route; EEXIST where its table has one to this destination with this metric."""
    _send(netlink, RTM_NEWROUTE, link, route, NLM_F_CREATE | NLM_F_EXCL)


def replace_route(netlink: Netlink, link: Link, route: Route) -> None:
    """Put a route in the place of the one that its table has to this destination with this metric."""
    _send(netlink, RTM_NEWROUTE, link, route, NLM_F_CREATE | NLM_F_REPLACE)


def remove_route(netlink: Netlink, link: Link, route: Route) -> None:
    """Remove a route; ESRCH where there is none like it."""
    _send(netlink, RTM_DELROUTE, link, route, 0)


def _send(netlink: Netlink, kind: int, link: Link, route: Route, flags: int) -> None:
    fields = {
        "family": _family(route.destination),
        "dst_len": route.destination.prefixlen,
        "proto": route.protocol,
        "scope": route.scope,
        "type": route.type,
        "flags": _RTNH_F_ONLINK if route.onlink else 0,
    }
    netlink.request(kind, fields, _attributes(link, route), flags=flags)


def _attributes(link: Link, route: Route) -> Wanted:
    wanted: list[tuple[str, int | bytes | Wanted]] = [
        ("RTA_DST", route.destination.network_address.packed),
        ("RTA_OIF", link.index),
        ("RTA_TABLE", route.table),
    ]
    if route.gateway is not None:
        wanted.append(_next_hop(route.destination, route.gateway))
    if route.metric:
        wanted.append(("RTA_PRIORITY", route.metric))
    if route.source is not None:
        wanted.append(("RTA_PREFSRC", route.source.packed))
    metrics = [(name, value) for name, value in (("RTAX_MTU", route.mtu), ("RTAX_ADVMSS", route.advmss)) if value]
    if metrics:
        wanted.append(("RTA_METRICS", tuple(metrics)))
    return tuple(wanted)


def _next_hop(destination: IpNetwork, gateway: IpAddress) -> tuple[str, bytes]:
    if gateway.version == destination.version:
        return "RTA_GATEWAY", gateway.packed
    return "RTA_VIA", _family(gateway).to_bytes(2, sys.byteorder) + gateway.packed


def _family(address: IpAddress | IpNetwork) -> int:
    return AF_INET6 if isinstance(address, IPv6Address | IPv6Network) else AF_INET
