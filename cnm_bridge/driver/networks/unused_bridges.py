# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Refuses a network whose subnet a bridge has that nothing uses: usually that of a network that was removed.

The plugin `bridge` removes no bridge. As long as the old one has its address, the kernel sends the packets for the
subnet there, and the containers of the new network are not reached.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import IpInterface, KernelError
from cnm_bridge.core.planning.addresses.address_ranges import find_ranges, overlap
from cnm_bridge.core.planning.plugin_needs import bridges, forwarding_links
from cnm_bridge.system.kernel import Kernel, Link

log = structlog.get_logger()

_BRIDGE: Final = "bridge"
_OF_DOCKER: Final = re.compile(r"docker0|docker_gwbridge|br-[0-9a-f]{12}")
"""Docker's own bridges, which it removes itself."""


@dataclass(frozen=True, slots=True)
class UnusedBridges:
    """Looks at the bridges of the host when a network is made."""

    kernel: Kernel

    async def refuse(self, network: NetworkConfigurationList, others: Iterable[NetworkConfigurationList]) -> None:
        """Refuse a list whose subnet is that of another bridge that has no links and is in no list.

        Args:
            network: The list of the new network.
            others: All lists that there are.

        Raises:
            Refused: There is such a bridge; the text has the command that removes it.
        """
        own = forwarding_links(network)
        if not own or not find_ranges(network):
            return
        try:
            links, addresses = await self.kernel.host_links(), await self.kernel.host_addresses()
        except KernelError as exc:
            log.info("reconcile.kernel_unread", error=str(exc))
            return
        unused = set(_without_links(links)).difference(own, *map(bridges, others))
        for bridge, address in _occupying(network, addresses):
            if bridge in unused:
                raise Refused(
                    f"the bridge {bridge} has the address {address} and no links, so packets for the containers of "
                    f"{network.name} would go there. If it is left of a removed network: ip link del {bridge}; "
                    "otherwise give the list another subnet"
                )


def _without_links(links: Sequence[Link]) -> Iterator[str]:
    """Yield the names of the bridges without links, except Docker's own."""
    masters = {link.master for link in links}
    for link in links:
        if link.state.kind == _BRIDGE and link.index not in masters and not _OF_DOCKER.fullmatch(link.state.name):
            yield link.state.name


def _occupying(
    network: NetworkConfigurationList, addresses: Iterable[tuple[IpInterface, str]]
) -> Iterator[tuple[str, IpInterface]]:
    """Yield the links whose own network is a subnet of the list, or a part of one, each with its address."""
    subnets = [one.subnet for one in find_ranges(network)]
    for address, link in addresses:
        found = address.network
        if any(overlap(subnet, found) and found.prefixlen >= subnet.prefixlen for subnet in subnets):
            yield link, address
