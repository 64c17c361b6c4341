# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The gateways that plugins make on the host answer from the first packet on.

`bridge` and `ptp` leave duplicate address detection of the gateway's IPv6 address to the kernel. Until it ends, one to
two seconds later, the host does not answer neighbour solicitations: neither for the first container on a new bridge,
nor for any container of `ptp`. Docker's own bridge has no detection (moby `bridge/bridge_linux.go`, IFA_F_NODAD), and
needs none: nothing else can have an address on a link that was made a moment ago.
"""

from collections.abc import Awaitable
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList, PluginConfiguration, Result
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_DEFAULT_BRIDGE: Final = "cni0"
_IPV6: Final = 6


async def add_with_gateways(kernel: Kernel, network: NetworkConfigurationList, add: Awaitable[Result]) -> Result:
    """Await the ADD of a list; then the links that it has made on the host answer for their IPv6 addresses.

    A bridge that was there before, such as one of the operator's with a LAN behind it, stays as it is.

    Raises:
        CniError, Refused, StateError: Those of the ADD.
    """
    missing = [name for name in _shared_links(network.plugins[0]) if not kernel.has_host_link(name)]
    result = await add
    if all(ip.address.version != _IPV6 for ip in result.ips):
        return result
    is_ptp = network.plugins[0].type == "ptp"
    made = [link.name for link in result.interfaces if not link.sandbox] if is_ptp else missing
    try:
        if made:
            await kernel.end_detection(made)
    except KernelError as exc:  # the gateway answers all the same, when the kernel's detection ends
        log.info("gateway.detection_goes_on", links=made, error=str(exc))
    return result


def _shared_links(plugin: PluginConfiguration) -> tuple[str, ...]:
    """Return the links of the host that the endpoints of a list share: the bridge, and that of its VLAN."""
    if plugin.type != "bridge":
        return ()
    name = plugin.document.get("bridge") or _DEFAULT_BRIDGE
    return f"{name}", f"{name}.{plugin.document.get('vlan')}"
