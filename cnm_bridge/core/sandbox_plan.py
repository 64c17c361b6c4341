# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records of what a sandbox needs beyond libnetwork's work, and of the state that libnetwork leaves. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cnm_bridge.core.link_state import (
    MAIN_TABLE,
    UNICAST,
    Address,
    IpInterface,
    IpNetwork,
    Neighbour,
    Route,
    Rule,
    Sysctl,
)

_LIBNETWORK_METRICS: Final = {4: 0, 6: 1024}
"""The metrics of the default routes that libnetwork adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRoute:
    """A route that libnetwork programs with fewer attributes than the plugins did."""

    plain: Route
    replacement: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What must be changed in a sandbox.

    Attributes:
        ifname: The name of the link in staging, which rules and sysctls contain.
        addresses: Further addresses, in the order to add them.
        unwanted: Routes to remove: the kernel adds them with addresses, and the plugins left none.
        routes: Further routes; those that others depend on come first.
        replaced: Routes to replace. A default route is replaced only if libnetwork made it for this endpoint: others
            belong to other networks of the container.
        fallbacks: Default routes for a sandbox that has none of their family.
        rules: Policy rules.
        neighbours: Permanent neighbours.
        sysctls: Settings, in the order to set them.
    """

    ifname: str
    addresses: tuple[Address, ...] = ()
    unwanted: tuple[Route, ...] = ()
    routes: tuple[Route, ...] = ()
    replaced: tuple[ReplacedRoute, ...] = ()
    fallbacks: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be changed."""
        return not self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts in words, e.g. `address 10.1.2.4/24`."""
        routes = (*self.routes, *(pair.replacement for pair in self.replaced), *self.fallbacks)
        return (
            *(f"address {address.address}" for address in self.addresses),
            *(f"no route {route}" for route in self.unwanted),
            *(f"route {route}" for route in routes),
            *map(str, (*self.rules, *self.neighbours, *self.sysctls)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The state of a sandbox once libnetwork has configured a link.

    Attributes:
        addresses: The addresses of the link, which is up.
        destinations: The destinations of routes through the link in the main table.
    """

    addresses: tuple[IpInterface, ...]
    destinations: tuple[IpNetwork, ...]


def is_left_to_libnetwork(route: Route, families: Collection[int]) -> bool:
    """Return whether libnetwork adds a route for the gateway endpoint, exclusively: it must not exist then.

    Other default routes stay: without a next hop, with one that is not on the link's networks, or with another metric.

    Args:
        route: A route through the link.
        families: The address families (4, 6) whose gateway the reply to Join has.
    """
    version = route.destination.version
    return (
        route.destination.prefixlen == 0
        and version in families
        and route.gateway is not None
        and route.gateway.version == version
        and not route.onlink
        and (route.table, route.type, route.metric) == (MAIN_TABLE, UNICAST, _LIBNETWORK_METRICS[version])
    )
