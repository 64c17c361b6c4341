# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Network namespaces, and the links, addresses and routes in them, as records.

The only room that uses netlink and pyroute2; the rooms above call `Kernel`. It does not know Docker, CNI, the database
or HTTP.
"""

import cnm_bridge.system.kernel.netlink  # noqa: F401  # before other modules import pyroute2
from cnm_bridge.system.kernel.container_files import FileEdit, read_host_config
from cnm_bridge.system.kernel.host import WATCHES_AT_ONCE
from cnm_bridge.system.kernel.host_ports import HostPorts
from cnm_bridge.system.kernel.kernel import Kernel
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netns import is_namespace
from cnm_bridge.system.kernel.pin import Finish, Pin
from cnm_bridge.system.kernel.processes import SandboxProcess
from cnm_bridge.system.kernel.sandboxes import Sandboxes
from cnm_bridge.system.kernel.staged_link import LinkLocation, StagedLink
from cnm_bridge.system.kernel.sysctl import Baseline, is_ipv6_on

__all__ = [
    "WATCHES_AT_ONCE",
    "Baseline",
    "FileEdit",
    "Finish",
    "HostPorts",
    "Kernel",
    "Link",
    "LinkLocation",
    "Pin",
    "SandboxProcess",
    "Sandboxes",
    "StagedLink",
    "is_ipv6_on",
    "is_namespace",
    "read_host_config",
]
