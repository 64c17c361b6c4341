# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state of links and namespaces as records, and the errors about it. Pure."""

from cnm_bridge.core.link_state.announced import find_dynamic, without_announced
from cnm_bridge.core.link_state.errors import (
    KernelError,
    LinkMissing,
    NamespaceMissing,
    NamespaceRefused,
    NameTaken,
    NotCarriable,
    SandboxNotSynced,
    attempt,
)
from cnm_bridge.core.link_state.extras import Neighbour, Observation, Qdisc, Rule, Sysctl
from cnm_bridge.core.link_state.sandbox_plan import Placement, ReplacedRoute, SandboxPlan, is_left_to_libnetwork
from cnm_bridge.core.link_state.snapshot import (
    BY_KERNEL,
    IPV6_LINK_LOCAL,
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

__all__ = [
    "BY_KERNEL",
    "IPV6_LINK_LOCAL",
    "MAIN_TABLE",
    "NO_PREFIX_ROUTE",
    "SCOPE_GLOBAL",
    "SCOPE_LINK",
    "UNICAST",
    "Address",
    "IpAddress",
    "IpInterface",
    "IpNetwork",
    "KernelError",
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
    "Snapshot",
    "Sysctl",
    "attempt",
    "find_dynamic",
    "is_left_to_libnetwork",
    "without_announced",
]
