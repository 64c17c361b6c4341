# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a link in a sandbox lacks of what its plugins made; pure.

Default routes are not compared: Docker keeps only those of one network of a container.
"""

from collections.abc import Iterable, Iterator

from cnm_bridge.core.link_state import IpInterface, Route, Snapshot
from cnm_bridge.core.planning.link.endpoint_replies import DEFAULT_ROUTES, given_addresses
from cnm_bridge.core.planning.link.plan_sandbox import describe_placement, plan_sandbox


def find_differences(made: Snapshot, found: Snapshot, *, internal: bool, is_moved: bool) -> Iterator[tuple[str, str]]:
    """Yield what differs: the kind (`link`, `address`, `route`, `rule`), and a text.

    Args:
        made: What the plugins left.
        found: What the sandbox has now.
        internal: Whether the network is internal.
        is_moved: Whether libnetwork has configured the link, instead of the plugins.
    """
    if made.link.mac is not None and found.link.mac != made.link.mac:
        yield "link", f"its MAC is {found.link.mac}, not {made.link.mac}"
    if found.link.mtu != made.link.mtu:
        yield "link", f"its MTU is {found.link.mtu}, not {made.link.mtu}"
    yield from find_missing_addresses(given_addresses(made), found)
    destinations = {(route.destination, route.gateway) for route in found.routes}
    for route in _expected(made, internal=internal, is_moved=is_moved):
        if (route.destination, route.gateway) not in destinations:
            yield "route", f"{route} is missing"
    if is_moved:
        reached = {route.destination for route in found.routes}
        placed = describe_placement(made, internal=internal, is_gateway=False).destinations
        yield from (("route", f"{one} is missing") for one in placed if one not in reached | DEFAULT_ROUTES)
    if len(found.rules) < len(made.rules):
        yield "rule", f"{len(made.rules) - len(found.rules)} policy rules are missing in the sandbox"


def find_missing_addresses(given: Iterable[IpInterface], found: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the addresses that plugins gave and that the link does not have, as `find_differences` does."""
    present = {address.ip for address in given_addresses(found)}
    yield from (("address", f"{one} is missing") for one in given if one.ip not in present)


def _expected(made: Snapshot, *, internal: bool, is_moved: bool) -> Iterator[Route]:
    """Yield the routes to find with their gateways; those that were moved may be in another table."""
    if is_moved:
        sandbox_plan = plan_sandbox(made, internal=internal)
        routes = (*sandbox_plan.routes, *(pair.wanted for pair in sandbox_plan.replaced))
    else:
        routes = made.routes
    yield from (route for route in routes if route.destination not in DEFAULT_ROUTES)
