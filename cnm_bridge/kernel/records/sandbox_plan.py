# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a sandbox is to have besides what libnetwork programs in it, and how to see that libnetwork is done. Pure."""

from dataclasses import dataclass

from cnm_bridge.kernel.records.extras import Neighbour, Qdisc, Rule, Sysctl
from cnm_bridge.kernel.records.snapshot import Address, IpInterface, IpNetwork, Route

__all__ = ["Placement", "ReplacedRoute", "SandboxPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedRoute:
    """A route that libnetwork programs plainly.

    Attributes:
        plain: As it is then.
        wanted: As it is to be.
    """

    plain: Route
    wanted: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What is to be brought into a sandbox.

    Attributes:
        ifname: What the link was called in staging: names in rules and sysctls are these.
        addresses: Further addresses, in the order to add them.
        routes: Further routes, those that others need first.
        replaced: Routes to be another than libnetwork made. A default route only where libnetwork made it: the others
            belong to other networks of the container.
        fallbacks: Default routes for a sandbox that has none of their family.
        rules: Policy rules.
        neighbours: Permanent neighbours.
        sysctls: Settings, in the order to set them.
        qdisc: The root qdisc, None for the kernel's choice.
    """

    ifname: str
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    replaced: tuple[ReplacedRoute, ...] = ()
    fallbacks: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()
    qdisc: Qdisc | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether libnetwork does all that is needed."""
        return not self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """Describe each part in words, e.g. `address 10.1.2.4/24`."""
        routes = (*self.routes, *(pair.wanted for pair in self.replaced), *self.fallbacks)
        return (
            *(f"address {address.address}" for address in self.addresses),
            *(f"route {route}" for route in routes),
            *map(str, (*self.rules, *self.neighbours, *self.sysctls)),
            *(() if self.qdisc is None else (str(self.qdisc),)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a sandbox has when libnetwork is done with a link.

    Attributes:
        addresses: On the link, which is up.
        destinations: Each with a route through the link in the main table.
    """

    addresses: tuple[IpInterface, ...]
    destinations: tuple[IpNetwork, ...]
