# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker networks: created and deleted."""

from dataclasses import dataclass
from typing import Final

import structlog

from cni_bridge_state import NetworkId, NetworkRecord, ProcessRecord, RequestedInterface
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList, run_preflight
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.guard import is_guarded, lone_guard, refuse_other_engine, status_list
from cnm_bridge.core.options.cni_options import Options, different_options, origin_of, parse_options
from cnm_bridge.core.options.docker_options import refuse_unread
from cnm_bridge.core.planning.plan import plan_attachment
from cnm_bridge.core.wire.network_driver import CreateNetwork, NetworkReference
from cnm_bridge.driver.networks.creation_checks import GlobalScope, UnusedBridges
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner, plan_request
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()

_SHOWN: Final = 12
"""How many digits of a network's ID stand for its name, which is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkService:
    """Creates and deletes networks.

    Attributes:
        global_scope: What networks need if this instance has the scope global, None if it has not.
    """

    store: Store
    lists: NetworkLists
    planner: EndpointPlanner
    unused_bridges: UnusedBridges
    global_scope: GlobalScope | None
    locks: KeyedLocks[NetworkId]

    async def create(self, request: CreateNetwork, caller: ProcessRecord | None) -> None:
        """Store a network after checking its options and configuration. Repeating the request changes nothing.

        Raises:
            BadOption: An option is unknown, or its value is invalid.
            Refused: Docker's IPAM has chosen a pool that the configuration does not have, an option needs a plugin that
                is not in the list, an unused bridge has its subnet, it
                cannot be guarded as it is made, or the network exists with other options.
            CniError: The configuration does not exist, one of its plugins is missing or too old, or `egress` is not
                ready for the allow-list.
        """
        options = parse_options(request.options)
        refuse_unread(request.options, ipv4=request.ipv4, ipv6=request.ipv6)
        record = NetworkRecord(
            id=request.network_id,
            configuration=options.configuration_name,
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
            if self.global_scope is not None:
                await self.global_scope.check(request)
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

    async def delete(self, request: NetworkReference) -> None:
        """Remove the record of a network, if there is one."""
        await self.forget(request.network_id)

    async def forget(self, network_id: NetworkId) -> None:
        """Remove the record of a network that Docker does not have, if there is one."""
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
        if options.inline is not None:
            self.lists.refuse_inline(options.inline)
        found = options.inline or index.find(network.configuration)
        wanted = plan_request(network, found, options, RequestedInterface())
        preflight = await run_preflight(self.lists.runtime, plan_attachment(wanted).configuration)
        if not preflight.is_good:
            problems = "; ".join(preflight.all_problems)
            raise Refused(
                f"CNI configuration {found.name} ({origin_of(found)}) cannot be used: {problems}. Fix that, and "
                "create the network again"
            )
        plan = await self.planner.choose(wanted)
        if is_guarded(plan.configuration):
            await self._check_guard(network, plan.configuration)
        await self.unused_bridges.refuse(found, (*map(index.find, index.names), *self.lists.inline()))
        if self.global_scope is not None:
            self.global_scope.warn(found)
        for warning in preflight.all_warnings:
            log.warning("configuration.guessed", name=found.name, file=origin_of(found), warning=warning)

    async def _check_guard(self, network: NetworkRecord, configuration: NetworkConfigurationList) -> None:
        """Refuse a guarded network that is not made as the engine needs it, or whose plugin `egress` is not ready."""
        refuse_other_engine(internal=network.internal, version=self.planner.version.current)
        await self.lists.runtime.status(status_list(configuration))


def _refuse_difference(known: NetworkRecord, wanted: NetworkRecord) -> None:
    # Only names: the value of an option may be a credential.
    if known.options != wanted.options:
        different = ", ".join(different_options(known.options, wanted.options))
        raise Refused(f"network {known.id} already exists with other options: {different}")
    if (known.internal, known.pools) != (wanted.internal, wanted.pools):
        raise Refused(f"network {known.id} already exists with another --internal or other address pools")
