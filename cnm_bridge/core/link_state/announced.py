# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Separates what the kernel has learnt from router advertisements from what plugins made; pure.

Plugins and advertisements reach a link at the same time. What was learnt in a staging namespace is learnt again in the
sandbox, so it must neither be in the reply to Join nor be synced.
"""

from collections.abc import Iterable
from ipaddress import IPv6Network

from cnm_bridge.core.link_state.snapshot import (
    BY_KERNEL,
    IPV6_LINK_LOCAL,
    MAIN_TABLE,
    SCOPE_LINK,
    Address,
    IpInterface,
    Route,
)


def without_announced(routes: Iterable[Route], addresses: Iterable[Address]) -> tuple[Route, ...]:
    """Return the routes of a link without those of announced prefixes.

    An announced prefix without a lifetime has a route like that of an address, but no address of a plugin has it. It
    may have no address at all, as where only DHCPv6 assigns them.
    """
    given = {address.prefix for address in addresses if address.is_permanent}
    return tuple(route for route in routes if route.destination in given or not _is_of_prefix(route))


def find_dynamic(addresses: Iterable[Address]) -> tuple[IpInterface, ...]:
    """Return the addresses with a lifetime (`ip address` calls them dynamic), without link-local ones."""
    return tuple(one.address for one in addresses if not one.is_permanent and one.scope != SCOPE_LINK)


def _is_of_prefix(route: Route) -> bool:
    """Return whether the kernel has added an IPv6 route for a prefix other than the link-local one."""
    return (
        isinstance(route.destination, IPv6Network)
        and (route.table, route.protocol, route.gateway) == (MAIN_TABLE, BY_KERNEL, None)
        and route.destination != IPV6_LINK_LOCAL
    )
