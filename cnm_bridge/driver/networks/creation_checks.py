# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Refuses new networks that could not work: in a swarm, or because of a bridge that was left behind."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import EngineUnavailable, Refused
from cnm_bridge.core.link_state import IpInterface, KernelError
from cnm_bridge.core.lists.address_ranges import find_ranges, overlap
from cnm_bridge.core.lists.plugin_needs import bridges, forwarding_links
from cnm_bridge.core.wire.network_driver import CreateNetwork
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, Link

log = structlog.get_logger()

_IPV4: Final = 4
_PATIENCE_S: Final = 1.0
"""How long Docker, which waits for the reply, is asked. While it boots it accepts connections and does not answer."""
_GATEWAYS: Final = ("isGateway", "isDefaultGateway")
_BRIDGE: Final = "bridge"
_OF_DOCKER: Final = re.compile(r"docker0|docker_gwbridge|br-[0-9a-f]{12}")
"""Docker's own bridges, which it removes itself."""


@dataclass(frozen=True, slots=True)
class GlobalScope:
    """What networks of global scope need.

    A swarm's manager gives such a network its subnet and each container its address; nodes receive both with
    CreateNetwork and CreateEndpoint. An error of AllocateNetwork on the manager is not shown (the network is made all
    the same, and its tasks stay `New`), so all is refused here, where `docker service ps` shows it.
    """

    engine: Engine

    async def check(self, request: CreateNetwork) -> None:
        """Refuse a network that has not exactly one IPv4 pool, or whose host is in no swarm.

        Raises:
            Refused: The text says what to change.
        """
        versions = [pool.subnet.version for pool in request.pools]
        if request.ipv6 or any(version != _IPV4 for version in versions):
            raise Refused(
                "a swarm gives the containers of a network of global scope IPv4 addresses only; make the network "
                "without --ipv6 and without an IPv6 --subnet"
            )
        if len(versions) != 1:
            raise Refused(
                f"a network of global scope has one subnet, from which the swarm's manager gives addresses, and not "
                f"{len(versions) or 'none'}; make it with one --subnet, that of the CNI configuration"
            )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                engine = await self.engine.describe()
        except (EngineUnavailable, TimeoutError) as exc:  # a node that boots: Docker has had the network before
            log.info("engine.swarm_unknown", error=str(exc))
            return
        if engine.is_swarm_node is False:
            raise Refused(
                "this instance has the scope global: a swarm's manager gives its networks their addresses, and this "
                "host is in no swarm; run docker swarm init or docker swarm join, or use an instance of local scope"
            )

    @staticmethod
    def warn(network: NetworkConfigurationList) -> None:
        """Log that each node would have the gateway's address, if a list's bridge gets it."""
        for plugin in network.plugins:
            if plugin.type == "bridge" and any(plugin.document.get(key) is True for key in _GATEWAYS):
                log.warning("network.gateway_on_each_node", configuration=network.name)


@dataclass(frozen=True, slots=True)
class UnusedBridges:
    """Looks at the bridges of the host: one that nothing uses is usually that of a network that was removed.

    The plugin `bridge` removes no bridge. As long as the old one has its address, the kernel sends the packets for the
    subnet there, and the containers of the new network are not reached.
    """

    kernel: Kernel

    async def refuse(self, network: NetworkConfigurationList, others: Iterable[NetworkConfigurationList]) -> None:
        """Refuse a list whose subnet is that of another bridge that has no links and is in no list.

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
