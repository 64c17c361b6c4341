# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and deletes Docker networks; refuses those that could not work: in a swarm, or because of a bridge."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from cni_bridge_state import NetworkId, NetworkRecord, ProcessRecord, RequestedInterface
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList, run_preflight
from cnm_bridge.core.errors import EngineUnavailable, KernelError, Refused
from cnm_bridge.core.link_state import IpInterface
from cnm_bridge.core.lists.address_ranges import find_ranges, overlap
from cnm_bridge.core.lists.guard import (
    find_shared_bridge,
    is_guarded,
    lone_guard,
    refuse_other_engine,
    refuse_shared_bridge,
    status_list,
)
from cnm_bridge.core.lists.plugins import bridges, forwarding_links
from cnm_bridge.core.options.cni_options import Options, different_options, parse_options
from cnm_bridge.core.options.docker_options import refuse_unread
from cnm_bridge.core.planning.plan import plan_attachment
from cnm_bridge.core.wire import CreateNetwork
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner, plan_request
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, Link
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_IPV4: Final = 4
_PATIENCE_S: Final = 1.0
"""How long Docker, which waits for the reply, is asked. While it boots it accepts connections and does not answer."""
_GATEWAYS: Final = ("isGateway", "isDefaultGateway")
_BRIDGE: Final = "bridge"
_OF_DOCKER: Final = re.compile(r"docker0|docker_gwbridge|br-[0-9a-f]{12}")
"""Docker's own bridges, which it removes itself."""


async def check_global(client: Engine, request: CreateNetwork) -> None:
    """Refuse a network of global scope that has not exactly one IPv4 pool, or whose host is in no swarm.

    A swarm's manager gives such a network its subnet and each container its address; nodes receive both with
    CreateNetwork and CreateEndpoint. An error of AllocateNetwork on the manager is not shown (the network is made all
    the same, and its tasks stay `New`), so all is refused here, where `docker service ps` shows it.
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
            engine = await client.describe()
    except (EngineUnavailable, TimeoutError) as exc:  # a node that boots: Docker has had the network before
        log.info("engine.swarm_unknown", error=str(exc))
        return
    if engine.is_swarm_node is False:
        raise Refused(
            "this instance has the scope global: a swarm's manager gives its networks their addresses, and this "
            "host is in no swarm; run docker swarm init or docker swarm join, or use an instance of local scope"
        )


def warn_of_gateways(network: NetworkConfigurationList) -> None:
    """Log that each node of a swarm would have the gateway's address, if a list's bridge gets it."""
    for plugin in network.plugins:
        if plugin.type == "bridge" and any(plugin.document.get(key) is True for key in _GATEWAYS):
            log.warning("network.gateway_on_each_node", configuration=network.name)


async def refuse_unused_bridge(
    kernel: Kernel, network: NetworkConfigurationList, others: Iterable[NetworkConfigurationList]
) -> None:
    """Refuse a list whose subnet is that of another bridge that has no links and is in no list.

    Such a bridge is usually that of a network that was removed: the plugin `bridge` removes no bridge. As long as the
    old one has its address, the kernel sends the packets for the subnet there, and the containers of the new network
    are not reached. The error has the command that removes it.
    """
    own = forwarding_links(network)
    if not own or not find_ranges(network):
        return
    try:
        links, addresses = await kernel.host_links(), await kernel.host_addresses()
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
    subnets = [address_range.subnet for address_range in find_ranges(network)]
    for address, link in addresses:
        found = address.network
        if any(overlap(subnet, found) and found.prefixlen >= subnet.prefixlen for subnet in subnets):
            yield link, address


_SHOWN: Final = 12
"""How many digits of a network's ID stand for its name, which is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkService:
    """Creates and deletes networks."""

    store: Store
    lists: NetworkLists
    planner: EndpointPlanner
    kernel: Kernel
    engine: Engine
    is_global: bool
    """Whether this instance has the scope global."""
    locks: KeyedLocks[NetworkId]

    async def create(self, request: CreateNetwork, caller: ProcessRecord | None) -> None:
        """Store a network after checking its options and configuration. Repeating the request changes nothing.

        Raises:
            BadOption: An option is unknown, or its value is invalid.
            Refused: Docker's IPAM has chosen a pool that the configuration does not have, an option needs a plugin that
                is not in the list, an unused bridge has its subnet, it cannot be guarded as it is made, its bridge is
                that of another network and only one of them is guarded, or the network exists with other options.
            CniError: The configuration does not exist, or a plugin is missing, too old, or not ready.
        """
        options = parse_options(request.options)
        refuse_unread(request.options, ipv4=request.ipv4, ipv6=request.ipv6)
        record = NetworkRecord(
            id=request.network_id,
            configuration=options.configuration,
            name=None,
            internal=request.internal,
            options=request.options,
            pools=request.pools,
            caller=caller,
            engine=self._find_engine(caller),
        )
        async with self.locks.hold(record.id):
            known = self.store.find_network(record.id)
            if known is not None:
                _refuse_difference(known, record)
                return
            if self.is_global:
                await check_global(self.engine, request)
            await self._check(record, options)
            await self.store.put_network(record)
        if record.configuration is None:
            self.lists.name_resolver.learn(record.id)
        log.info("network.created", **({"configuration": record.configuration} if record.configuration else {}))

    def _find_engine(self, caller: ProcessRecord | None) -> str | None:
        """Return the engine that makes a call, None if it is not known: the one for which it has called before.

        It is stored with a network before the engine lists it, because its process and the other calls of that may be
        forgotten sooner than the network.
        """
        engines = {network.id: network.engine for network in self.store.networks() if network.engine is not None}
        calls = (
            *((network.caller, network.id) for network in self.store.networks()),
            *((endpoint.caller, endpoint.network_id) for endpoint in self.store.endpoints()),
        )
        known = (engines[network_id] for one, network_id in calls if one == caller and network_id in engines)
        return None if caller is None else next(known, None)

    async def forget(self, network_id: NetworkId) -> None:
        """Remove the record of a network that Docker removes, or does not have; there may be none."""
        async with self.locks.hold(network_id):
            await self.store.remove_network(network_id)
        self.planner.forget(network_id)

    async def _check(self, network: NetworkRecord, options: Options) -> None:
        """Refuse a network on which every endpoint would be refused."""
        index = self.lists.index()
        if network.configuration is None:
            index.require_any()
            if options.egress.guards:
                guard = lone_guard(network.id[:_SHOWN], options.egress.allow, audit=options.egress.audit)
                await self._check_guard(network, guard)
            return
        found = index.find(network.configuration)
        wanted = plan_request(network, found, options, RequestedInterface())
        preflight = await run_preflight(self.lists.runtime, plan_attachment(wanted).configuration)
        if not preflight.is_good:
            problems = "; ".join(preflight.all_problems)
            raise Refused(
                f"CNI configuration {found.name} ({found.source}) cannot be used: {problems}. Fix that, and "
                "create the network again"
            )
        plan = await self.planner.choose(wanted)
        if is_guarded(plan.configuration):
            await self._check_guard(network, plan.configuration)
        await self._check_bridges(network, plan.configuration)
        await refuse_unused_bridge(self.kernel, found, map(index.find, index.names))
        if self.is_global:
            warn_of_gateways(found)
        for warning in preflight.all_warnings:
            log.warning("configuration.guessed", name=found.name, file=str(found.source), warning=warning)

    async def _check_guard(self, network: NetworkRecord, configuration: NetworkConfigurationList) -> None:
        """Refuse a guarded network that is not made as the engine needs it, or whose plugin `egress` is not ready."""
        refuse_other_engine(internal=network.internal, version=self.planner.version.current)
        await self.lists.runtime.status(status_list(configuration))

    async def _check_bridges(self, network: NetworkRecord, configuration: NetworkConfigurationList) -> None:
        """Refuse a guarded network on the bridge of one that is not, and the reverse.

        A network whose name Docker has not reported yet has no list that is known, and is not compared. Those that
        come from the engine (`engine_import.py`) or a swarm's manager are not checked: what exists stays, and `doctor`
        reports it.
        """
        for other, listed in () if self.is_global else self.lists.current_lists():
            bridge = find_shared_bridge(configuration, listed)
            if other.id != network.id and bridge is not None:
                refuse_shared_bridge(bridge, await self._show(other), is_other_guarded=is_guarded(listed))

    async def _show(self, network: NetworkRecord) -> str:
        """Return the name of a network, or the beginning of its ID if the engine does not tell the name in time."""
        if network.name is not None:
            return network.name
        with suppress(EngineUnavailable, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                return await self.engine.network_name(network.id) or network.id[:_SHOWN]
        return network.id[:_SHOWN]


def _refuse_difference(known: NetworkRecord, wanted: NetworkRecord) -> None:
    # Only names: the value of an option may be a credential.
    if known.options != wanted.options:
        different = ", ".join(different_options(known.options, wanted.options))
        raise Refused(f"network {known.id} already exists with other options: {different}")
    if (known.internal, known.pools) != (wanted.internal, wanted.pools):
        raise Refused(f"network {known.id} already exists with another --internal or other address pools")
