# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Refuses networks that a swarm cannot have, in an instance of global scope.

A swarm's manager gives such a network its subnet and each container its address; nodes receive both with CreateNetwork
and CreateEndpoint. An error of AllocateNetwork on the manager is not shown (the network is made all the same, and
its tasks stay `New`), so all is refused here, where `docker service ps` shows it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import EngineUnavailable, Refused
from cnm_bridge.core.wire import CreateNetwork
from cnm_bridge.system.engine import Engine

__all__ = ["GlobalScope"]

log = structlog.get_logger()

_IPV4: Final = 4
_PATIENCE_S: Final = 1.0
"""How long Docker, which waits for the reply, is asked. While it boots it accepts connections and does not answer."""
_GATEWAYS: Final = ("isGateway", "isDefaultGateway")


@dataclass(frozen=True, slots=True)
class GlobalScope:
    """What networks of global scope need."""

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
