# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Namespaces, links and what is on them: records in, records out.

The only user of netlink and of pyroute2. Knows no Docker, CNI, database or HTTP. `Kernel` is the way in.
"""

import cnm_bridge.kernel.pyroute2_in_parts  # noqa: F401 - before all that imports parts of it

# isort: split
from cnm_bridge.kernel.carried import Neighbour, Qdisc, Rule, Sysctl
from cnm_bridge.kernel.errors import (
    KernelError,
    LinkMissing,
    NamespaceMissing,
    NamespaceRefused,
    NameTaken,
    NotCarriable,
    NotSettled,
)
from cnm_bridge.kernel.host_ports import HostPorts
from cnm_bridge.kernel.journey import Whereabouts
from cnm_bridge.kernel.kernel import WATCHES_AT_ONCE, Kernel
from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.settlement import Placement, ReplacedRoute, Settlement
from cnm_bridge.kernel.snapshot import (
    BY_KERNEL,
    MAIN_TABLE,
    NO_PREFIX_ROUTE,
    SCOPE_GLOBAL,
    SCOPE_LINK,
    UNICAST,
    Address,
    IpAddress,
    IpInterface,
    IpNetwork,
    LinkState,
    Route,
    Snapshot,
)
from cnm_bridge.kernel.sysctl import Baseline, Observation

__all__ = [
    "BY_KERNEL",
    "MAIN_TABLE",
    "NO_PREFIX_ROUTE",
    "SCOPE_GLOBAL",
    "SCOPE_LINK",
    "UNICAST",
    "WATCHES_AT_ONCE",
    "Address",
    "Baseline",
    "HostPorts",
    "IpAddress",
    "IpInterface",
    "IpNetwork",
    "Kernel",
    "KernelError",
    "Link",
    "LinkMissing",
    "LinkState",
    "NameTaken",
    "NamespaceMissing",
    "NamespaceRefused",
    "Neighbour",
    "NotCarriable",
    "NotSettled",
    "Observation",
    "Placement",
    "Qdisc",
    "ReplacedRoute",
    "Route",
    "Rule",
    "Settlement",
    "Snapshot",
    "Sysctl",
    "Whereabouts",
]
