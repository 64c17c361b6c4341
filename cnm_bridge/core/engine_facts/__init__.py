# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the Docker Engine reports about itself, containers and networks, as records. Pure."""

from cnm_bridge.core.engine_facts.container import (
    EngineContainer,
    container_of_cgroup,
    find_sandbox,
    has_name,
    has_other_network,
    is_only_network,
    link_local_addresses,
)
from cnm_bridge.core.engine_facts.engine import (
    DNS_BEFORE_START,
    SANDBOX_AT_JOIN,
    EngineDescription,
    EngineVersion,
    find_remapped_group,
)
from cnm_bridge.core.engine_facts.network import (
    EngineEndpoint,
    EngineIpamNetwork,
    EngineNetwork,
    find_pools,
    has_ipam_driver,
    is_on_this_host,
)
from cnm_bridge.core.engine_facts.privileges import find_privileges

__all__ = [
    "DNS_BEFORE_START",
    "SANDBOX_AT_JOIN",
    "EngineContainer",
    "EngineDescription",
    "EngineEndpoint",
    "EngineIpamNetwork",
    "EngineNetwork",
    "EngineVersion",
    "container_of_cgroup",
    "find_pools",
    "find_privileges",
    "find_remapped_group",
    "find_sandbox",
    "has_ipam_driver",
    "has_name",
    "has_other_network",
    "is_on_this_host",
    "is_only_network",
    "link_local_addresses",
]
