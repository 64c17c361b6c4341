# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads, adds, replaces and removes routes through a link.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE

from cnm_bridge.core.errors import NotCarriable
from cnm_bridge.core.link_state import BY_KERNEL, MAIN_TABLE, IpAddress, IpNetwork, Route
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink, Wanted

Places = Mapping[int, frozenset[tuple[IpNetwork, int]]]
"""Table → destination and metric of each route in it; the kernel allows no duplicates."""

_LOCAL_TABLE: Final = 255
_HEARD: Final = {1, 9}  # RTPROT_REDIRECT, RTPROT_RA: learnt from routers, and will be learnt in the sandbox again
_RTNH_F_ONLINK: Final = 4
_DEFAULTS: Final[dict[int, str]] = {AF_INET: "0.0.0.0", AF_INET6: "::"}  # noqa: S104 - a destination, nothing listens there
_CACHE: Final = struct.Struct("=IIi")  # the beginning of rta_cacheinfo; the third word is the remaining lifetime
_UNDERSTOOD: Final = {
    *("RTA_TABLE", "RTA_DST", "RTA_GATEWAY", "RTA_VIA", "RTA_OIF", "RTA_PRIORITY", "RTA_PREFSRC", "RTA_METRICS"),
    *("RTA_CACHEINFO", "RTA_PREF"),  # every IPv6 route has both; their values are checked
}
_BEYOND: Final = {
    "RTA_MULTIPATH": "several next hops",
    "RTA_ENCAP": "an encapsulation",
    "RTA_ENCAP_TYPE": "an encapsulation",
    "RTA_SRC": "a source prefix",
    "RTA_FLOW": "a realm",
    "26": "a setting for MPLS",  # RTA_TTL_PROPAGATE
    "30": "a next hop object",  # RTA_NH_ID
}
_TYPES: Final = {2: "local route", 6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw"}
_METRICS: Final = {"RTAX_MTU", "RTAX_ADVMSS"}


def find_routes(netlink: Netlink, link: Link) -> tuple[Route, ...]:
    """Return the routes through a link, IPv4 first; errors as in `parse_route`.

    Leaves out the table `local` and routes learnt from routers. The routes that the kernel adds for the prefixes of
    addresses are included.
    """
    return tuple(map(parse_route, _routes_through(netlink, link)))


def find_plain_routes(netlink: Netlink, link: Link) -> tuple[Route, ...]:
    """Return the same routes, without those that a `Route` cannot represent; other programs may add those."""
    return tuple(
        parse_route(message) for message in _routes_through(netlink, link) if not _unsupported_attributes(message)
    )


def find_routes_elsewhere(netlink: Netlink, link: Link) -> tuple[str, ...]:
    """Describe the routes that plugins made and that do not lead through a link, e.g. `unreachable 10.9.0.0/16`."""
    return tuple(
        f"{_TYPES.get(message.field('type'), 'route')} {_destination(message)}"
        for message in _ip_routes(netlink)
        if message.field("proto") not in {BY_KERNEL, *_HEARD}
        and message.number("RTA_OIF") != link.index
        and "RTA_MULTIPATH" not in message
    )


def find_places(netlink: Netlink, link: Link) -> Places:
    """Return the table, destination and metric of each route that does not lead through a link."""
    places: dict[int, set[tuple[IpNetwork, int]]] = {}
    for message in _ip_routes(netlink):
        if message.number("RTA_OIF") != link.index:
            place = _destination(message), message.number("RTA_PRIORITY") or 0
            places.setdefault(_table(message), set()).add(place)
    return {table: frozenset(taken) for table, taken in places.items()}


def find_destinations(netlink: Netlink) -> tuple[tuple[IpNetwork, int | None], ...]:
    """Return the destination of each route in the main table, and the index of its link."""
    return tuple(
        (_destination(message), message.number("RTA_OIF"))
        for message in _ip_routes(netlink)
        if _table(message) == MAIN_TABLE
    )


def _routes_through(netlink: Netlink, link: Link) -> Iterator[Message]:
    for message in _ip_routes(netlink, ("RTA_OIF", link.index)):  # the kernel filters
        protocol = message.field("proto")
        of_address = protocol == BY_KERNEL and message.field("table") == _LOCAL_TABLE
        heard = protocol in _HEARD or (protocol == BY_KERNEL and _has_lifetime(message))
        if not of_address and not heard:
            yield message


def _ip_routes(netlink: Netlink, *filters: tuple[str, int]) -> Iterator[Message]:
    # a dump of all families also works without IPv6
    for message in netlink.dump(RTM_GETROUTE, {"family": AF_UNSPEC}, filters):
        if message.field("family") in _DEFAULTS:
            yield message


def remove_announced_defaults(netlink: Netlink, link: Link) -> None:
    """Remove the IPv6 default routes through a link that routers have announced."""
    for message in netlink.dump(RTM_GETROUTE, {"family": AF_INET6}, (("RTA_OIF", link.index),)):
        protocol = message.field("proto")
        if message.field("dst_len") == 0 and protocol in _HEARD:
            attributes = ("RTA_OIF", link.index), ("RTA_TABLE", _table(message))
            with suppress(ProcessLookupError):  # it has expired
                netlink.request(RTM_DELROUTE, {"family": AF_INET6, "proto": protocol}, attributes)


def has_default(netlink: Netlink, destination: IpNetwork) -> bool:
    """Return whether the main table has a default route of the destination's family, through any link."""
    family = _family(destination)
    messages = netlink.dump(RTM_GETROUTE, {"family": family}, (("RTA_TABLE", MAIN_TABLE),))
    return any(message.field("dst_len") == 0 and message.field("family") == family for message in messages)


def parse_route(message: Message) -> Route:
    """Parse the kernel's message about a route; raise `NotCarriable` if a `Route` cannot represent it."""
    destination, metrics = _destination(message), message.nested("RTA_METRICS")
    beyond = _unsupported_attributes(message)
    if beyond:
        raise NotCarriable(f"route {destination} with {' and '.join(beyond)}")
    return Route(
        destination=destination,
        gateway=message.address("RTA_GATEWAY") or message.address("RTA_VIA"),
        table=_table(message),
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
    """Add a route; raise EEXIST if its table has one with this destination and metric."""
    _send(netlink, RTM_NEWROUTE, link, route, NLM_F_CREATE | NLM_F_EXCL)


def replace_route(netlink: Netlink, link: Link, route: Route) -> None:
    """Replace the route with the same table, destination and metric."""
    _send(netlink, RTM_NEWROUTE, link, route, NLM_F_CREATE | NLM_F_REPLACE)


def remove_route(netlink: Netlink, link: Link, route: Route) -> None:
    """Remove a route; raise ESRCH if it does not exist."""
    _send(netlink, RTM_DELROUTE, link, route, 0)


def _table(message: Message) -> int:
    return message.number("RTA_TABLE") or message.field("table")


def _destination(message: Message) -> IpNetwork:
    destination = message.address("RTA_DST") or _DEFAULTS[message.field("family")]
    return ip_network((destination, message.field("dst_len")))


def _unsupported_attributes(message: Message) -> tuple[str, ...]:
    """Return, in words, the attributes of a route that a `Route` cannot represent."""
    attributes = sorted(message.names() - _UNDERSTOOD)
    beyond = [_BEYOND.get(attribute, f"attribute {attribute}") for attribute in attributes]
    if message.field("tos"):
        beyond.append("a type of service")
    if any(message.find("RTA_PREF") or b""):  # 0 is medium
        beyond.append("a router preference")
    if _has_lifetime(message):
        beyond.append("a lifetime")
    metrics = message.nested("RTA_METRICS")
    if metrics is not None and not metrics.names() <= _METRICS:
        beyond.append("metrics beyond MTU and MSS")
    return tuple(dict.fromkeys(beyond))


def _has_lifetime(message: Message) -> bool:
    cache = message.find("RTA_CACHEINFO")
    return cache is not None and _CACHE.unpack_from(cache)[-1] != 0


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
