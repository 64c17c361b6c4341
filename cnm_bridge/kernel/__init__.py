# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Namespaces, links and what is on them: records in, records out.

The only user of netlink and of pyroute2. Knows no Docker, CNI, database or HTTP. `Kernel` is the way in.
"""

from cnm_bridge.kernel.errors import KernelError, LinkMissing, NamespaceMissing, NamespaceRefused, NameTaken
from cnm_bridge.kernel.journey import Whereabouts
from cnm_bridge.kernel.kernel import Kernel
from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.snapshot import (
    MAIN_TABLE,
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
    "MAIN_TABLE",
    "SCOPE_GLOBAL",
    "SCOPE_LINK",
    "UNICAST",
    "Address",
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
    "Route",
    "Snapshot",
    "Whereabouts",
]
