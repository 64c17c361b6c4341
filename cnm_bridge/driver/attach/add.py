# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs ADD of a list: what its plugins miss on the host, and what they leave there.

`bridge` and `ptp` leave duplicate address detection of the gateway's IPv6 address to the kernel. Until it ends, one to
two seconds later, the host does not answer neighbour solicitations: neither for the first container on a new bridge,
nor for any container of `ptp`. Docker's own bridge has no detection (moby `bridge/bridge_linux.go`, IFA_F_NODAD), and
needs none: nothing else can have an address on a link that was made a moment ago.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList, PluginFailed, Result
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.lists.plugin_needs import bridge_of, find_missing_links
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_IPV6: Final = 6


async def run_add(kernel: Kernel, network: NetworkConfigurationList, add: Awaitable[Result]) -> Result:
    """Await the ADD of a list; then the links that it has made on the host answer for their IPv6 addresses.

    A bridge that was there before, such as one of the operator's with a LAN behind it, stays as it is. A plugin's error
    gets a note of each link of its list that the host does not have.

    Raises:
        CniError, Refused, StateError: Those of the ADD.
    """
    main = network.plugins[0]
    is_new = main.type == "bridge" and not kernel.has_host_link(bridge_of(main.document))
    async with _naming_missing_links(kernel, network):
        result = await add
    if all(ip.address.version != _IPV6 for ip in result.ips):
        return result
    made = [link.name for link in result.interfaces if not link.sandbox] if is_new or main.type == "ptp" else []
    try:
        if made:
            await kernel.end_detection(made)
    except KernelError as exc:  # the gateway answers all the same, when the kernel's detection ends
        log.info("gateway.detection_goes_on", links=made, error=str(exc))
    return result


@asynccontextmanager
async def _naming_missing_links(kernel: Kernel, network: NetworkConfigurationList) -> AsyncIterator[None]:
    try:
        yield
    except PluginFailed as exc:
        with suppress(KernelError):
            links = await kernel.host_links()
            existing = frozenset(name for link in links for name in (link.state.name, *link.altnames))
            for name, what in find_missing_links(network, existing):
                exc.add_note(f"the host has no link {name}, the {what}; `ip link` shows all")
        raise
