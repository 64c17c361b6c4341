# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Network namespaces, and the links, addresses and routes in them, as records.

The only room that uses netlink and pyroute2; the rooms above call `Kernel`. It does not know Docker, CNI, the database
or HTTP.
"""

import cnm_bridge.kernel.netlink.pyroute2_in_parts  # noqa: F401 - must precede every import of pyroute2

# isort: split
from cnm_bridge.kernel.errors import (
    KernelError,
    LinkMissing,
    NamespaceMissing,
    NamespaceRefused,
    NameTaken,
    NotCarriable,
    SandboxNotSynced,
)
from cnm_bridge.kernel.facade import WATCHES_AT_ONCE, Kernel
from cnm_bridge.kernel.host_ports import HostPorts
from cnm_bridge.kernel.movement.link_mover import LinkLocation
from cnm_bridge.kernel.namespaces.first_process import SandboxProcess
from cnm_bridge.kernel.netlink.iptables_chain import has_chain
from cnm_bridge.kernel.netlink.links import Link
from cnm_bridge.kernel.procfs.sysctl import Baseline, Observation
from cnm_bridge.kernel.records.extras import Neighbour, Qdisc, Rule, Sysctl
from cnm_bridge.kernel.records.sandbox_plan import Placement, ReplacedRoute, SandboxPlan
from cnm_bridge.kernel.records.snapshot import (
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
from cnm_bridge.kernel.sandbox.pin import Finish, is_left_to_libnetwork
from cnm_bridge.kernel.view import KernelView

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
    "Finish",
    "HostPorts",
    "IpAddress",
    "IpInterface",
    "IpNetwork",
    "Kernel",
    "KernelError",
    "KernelView",
    "Link",
    "LinkLocation",
    "LinkMissing",
    "LinkState",
    "NameTaken",
    "NamespaceMissing",
    "NamespaceRefused",
    "Neighbour",
    "NotCarriable",
    "Observation",
    "Placement",
    "Qdisc",
    "ReplacedRoute",
    "Route",
    "Rule",
    "SandboxNotSynced",
    "SandboxPlan",
    "SandboxProcess",
    "Snapshot",
    "Sysctl",
    "has_chain",
    "is_left_to_libnetwork",
]
