# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names the link of the host that a plugin did not find."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cni_invoker import NetworkConfigurationList, PluginFailed
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.planning.plugin_needs import find_missing_links
from cnm_bridge.system.kernel import KernelView


@asynccontextmanager
async def naming_missing_links(network: NetworkConfigurationList, kernel: KernelView) -> AsyncIterator[None]:
    """Add to a plugin's error in the block which links of its list the host does not have (`add_note`)."""
    try:
        yield
    except PluginFailed as exc:
        with suppress(KernelError):
            links = await kernel.host_links()
            existing = frozenset(name for link in links for name in (link.state.name, *link.altnames))
            for name, what in find_missing_links(network, existing):
                exc.add_note(f"the host has no link {name}, the {what}; `ip link` shows all")
        raise
