# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker networks: created, deleted, and resolved to a network configuration list."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import MemoryRecord, NetworkId, NetworkRecord, ProcessRecord, RequestedInterface
from cni_bridge_state.store import Store
from cni_invoker import (
    CniError,
    ConfigurationDirectories,
    ConfigurationIndex,
    NetworkConfigurationList,
    Runtime,
    run_preflight,
)
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import Refused, network_option
from cnm_bridge.core.planning.addresses.address_ranges import find_unused_pools
from cnm_bridge.core.planning.options.cni_options import (
    CONFIGURATION,
    INLINE,
    Options,
    different_options,
    doubtful_arguments,
    origin_of,
    parse_options,
    with_spelling,
)
from cnm_bridge.core.planning.options.docker_options import refuse_unread
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment
from cnm_bridge.core.planning.plugin_needs import refuse_without_ipv6
from cnm_bridge.core.settings import AttachOption
from cnm_bridge.core.wire import CreateEndpoint, CreateNetwork, NetworkReference
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.networks.global_scope import GlobalScope
from cnm_bridge.driver.networks.managed import ManagedNetworks
from cnm_bridge.driver.networks.network_names import NetworkNameResolver
from cnm_bridge.driver.networks.plan_endpoint import plan_endpoint
from cnm_bridge.driver.networks.unused_bridges import UnusedBridges
from cnm_bridge.system.engine import KnownRelease
from cnm_bridge.system.kernel import is_ipv6_on
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()


@dataclass(kw_only=True)
class NetworkService:
    """Creates, deletes and resolves networks.

    Attributes:
        attach: How to attach endpoints for which `cni.attach` is not set.
        allow_inline: Whether a network may bring its own list.
        global_scope: What networks need if this instance has the scope global, None if it has not.
        arg_names: The names of arguments of plugins that an operator has listed.
    """

    store: Store
    directories: ConfigurationDirectories
    runtime: Runtime
    name_resolver: NetworkNameResolver
    engine_import: EngineImport
    release: KnownRelease
    attach: AttachOption
    allow_inline: bool
    arg_names: Collection[str]
    global_scope: GlobalScope | None
    managed: ManagedNetworks
    unused_bridges: UnusedBridges
    locks: KeyedLocks[NetworkId]
    _seen: ConfigurationIndex | None = field(default=None, init=False)
    _unknown_options: set[str] = field(default_factory=set, init=False)
    _with_unused_pools: set[NetworkId] = field(default_factory=set, init=False)

    async def create(self, request: CreateNetwork, caller: ProcessRecord | None) -> None:
        """Store a network after checking its options and configuration. Repeating the request changes nothing.

        Raises:
            BadOption: An option is unknown, or its value is invalid.
            Refused: Docker's IPAM has chosen a pool that the configuration does not have, an option needs a plugin that
                is not in the list, the configuration belongs to a locked network, an unused bridge has its subnet, or
                the network exists with other options.
            CniError: The configuration does not exist, or one of its plugins is missing or too old.
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
            self.managed.refuse_other(record.configuration, record.options)
            await self._check(record, options)
            await self.store.put_network(record)
        if record.configuration is None:
            self.name_resolver.learn(record.id)
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
        """Remove the record of a network, if there is one.

        Raises:
            Refused: It is locked, and will be created again. Docker removes it all the same, so its record is removed.
        """
        await self.forget(request.network_id)
        self.managed.note_deleted(request.network_id)

    async def forget(self, network_id: NetworkId) -> None:
        """Remove the record of a network that Docker does not have, if there is one."""
        async with self.locks.hold(network_id):
            await self.store.remove_network(network_id)
        self._with_unused_pools.discard(network_id)

    async def plan(self, request: CreateEndpoint) -> tuple[NetworkRecord, Plan]:
        """Return an endpoint's network and its plan, made from the list that is on disk now.

        Raises:
            BadOption: An option is unknown, or its value is invalid.
            Refused: The network is unknown, its name is not known in time, there is no list of that name, or the list
                cannot provide what is requested.
            CniError: The list named with `cni.network` no longer exists, or its plugins do not support its version.
        """
        return await self._plan(request.network_id, request.options, request.requested)

    async def resolve(self, network_id: NetworkId) -> tuple[NetworkRecord, NetworkConfigurationList]:
        """Return a network and its list for an endpoint without requested values.

        Raises:
            BadOption, Refused, CniError: As `plan`.
        """
        network, plan = await self._plan(network_id, {}, RequestedInterface())
        return network, plan.configuration

    async def _plan(
        self, network_id: NetworkId, given: Mapping[str, str], requested: RequestedInterface
    ) -> tuple[NetworkRecord, Plan]:
        network = self.store.find_network(network_id) or await self.engine_import.find(network_id)
        if network is None:
            raise Refused(
                f"cni-bridge has no record of network {network_id}, and the Docker Engine did not describe it; "
                "check --docker-host, or remove the Docker network and create it again"
            )
        self.managed.refuse_override(network.options, given)
        for option in doubtful_arguments(network.options, given, self.arg_names):
            log.warning("endpoint.argument_in_lower_case", option=option)
        given = with_spelling(given, self.arg_names)
        options = parse_options(network.options, given)
        for option in options.unknown:
            if option not in self._unknown_options:
                self._unknown_options.add(option)
                log.warning("endpoint.option_unknown", option=option)
        configuration = await self._find_configuration(network, options)
        wanted = _plan_request(network, configuration, options, requested)
        plan = await self._plan_endpoint(replace(wanted, memory=self._recall(configuration.name, options)))
        self._warn_of_unused_pools(network, configuration)
        return network, plan

    def _recall(self, configuration: str, options: Options) -> MemoryRecord | None:
        """Return what the last container with the same key had, without a MAC that another endpoint has.

        An endpoint with the same MAC and one of the addresses may be the last container's, not yet found dead. If it
        is alive, the IPAM plugin refuses the address, and the MAC is looked for once more.
        """
        memory = None if options.sticky is None else self.store.memories.find(configuration, options.sticky)
        if memory is None or memory.mac is None:
            return memory
        holders = map(self.store.get_endpoint, self.store.endpoints_with_mac(configuration, memory.mac))
        is_taken = any(set(memory.addresses).isdisjoint(one.addresses) for one in holders)
        return replace(memory, mac=None) if is_taken else memory

    async def _plan_endpoint(self, wanted: PlanRequest) -> Plan:
        plan = await plan_endpoint(wanted, self.runtime, default=self.attach, release=self.release.current)
        refuse_without_ipv6(plan.configuration, is_ipv6_on)
        return plan

    async def _find_configuration(self, network: NetworkRecord, options: Options) -> NetworkConfigurationList:
        if options.inline is not None:
            self._refuse_inline(options.inline)
            return options.inline
        bound = options.configuration or network.configuration
        if bound is not None:
            self.managed.refuse_container(bound, network.options)
            return self._index().find(bound)
        name = network.name or await self.name_resolver.wait(network.id)
        self.managed.refuse_name(name)
        try:
            return self._index().find(name)
        except ConfigurationNotFound as exc:
            found = await self._bind_to_compose_name(network)
            if found is not None:
                return found
            raise Refused(
                f"network {name} was made without -o cni.network, so it takes the CNI configuration of its own name: "
                f"{exc}. Add one of that name, or make the network again with {network_option('cni.network', 'NAME')}"
            ) from exc

    async def _bind_to_compose_name(self, network: NetworkRecord) -> NetworkConfigurationList | None:
        """Bind a network to the configuration of its name in the compose file; return None if there is none.

        Compose puts the project's name before the network's: `blue` becomes `shop_blue`.
        """
        described = await self.engine_import.ask(network.id)
        name = None if described is None else described.compose_name
        if name is None:
            return None
        with suppress(ConfigurationNotFound):
            found = self._index().find(name)
            self.managed.refuse_other(name, network.options)
            async with self.locks.hold(network.id):
                record = self.store.find_network(network.id)
                if record is not None:
                    await self.store.put_network(replace(record, configuration=name))
            log.info("network.bound", network_id=network.id, name=network.name, configuration=name)
            return found
        return None

    async def find_configuration(self, name: str) -> NetworkConfigurationList:
        """Return the list of this name that is on disk now, in a version that all its plugins support.

        Raises:
            CniError: It does not exist, or its plugins have no version in common.
        """
        inline = (found for found in self._inline_lists() if found.name == name)
        return await self.runtime.negotiate(next(inline, None) or self._index().find(name))

    def bound_names(self) -> tuple[str, ...]:
        """Return the names of the lists that networks use."""
        names = (network.configuration or network.name for network in self.store.networks())
        return tuple(name for name in names if name is not None)

    def bound_documents(self) -> tuple[JsonObject, ...]:
        """Return the JSON of the lists that networks use and that are on disk now."""
        found = [inline.document for inline in self._inline_lists()]
        index = self._index()
        for name in dict.fromkeys(self.bound_names()):
            with suppress(CniError):
                found.append(index.find(name).document)
        return tuple(found)

    def _inline_lists(self) -> Iterator[NetworkConfigurationList]:
        """Yield the lists that networks have brought."""
        for network in self.store.networks():
            if INLINE in network.options and (inline := parse_options(network.options).inline) is not None:
                yield inline

    def _refuse_inline(self, inline: NetworkConfigurationList) -> None:
        """Refuse a list that a network has brought, unless the operator allows it and its name is free."""
        if not self.allow_inline:
            raise Refused(
                f"option {INLINE}: not allowed, because it runs plugins as root with arguments of the caller's choice; "
                "an operator can allow it with allow-inline = true in the configuration of cni-bridge"
            )
        with suppress(ConfigurationNotFound):
            known = self._index().find(inline.name)
            raise Refused(
                f"option {INLINE}: the host has a CNI configuration {inline.name} already ({known.source}); use "
                f"-o {CONFIGURATION}={inline.name}, or give the list another name"
            )

    def _index(self) -> ConfigurationIndex:
        """Return the current configurations; unusable ones are logged once after each change."""
        index = self.directories.index()
        if index is not self._seen:
            self._seen = index
            for problem in index.problems:
                log.warning("configuration.unusable", problem=str(problem))
            for shadowed in index.shadowed:
                log.warning("configuration.shadowed", name=shadowed.name, file=str(shadowed.file), by=str(shadowed.by))
        return index

    async def _check(self, network: NetworkRecord, options: Options) -> None:
        """Refuse a network on which every endpoint would be refused."""
        index = self._index()
        if network.configuration is None:
            index.require_any()
            return
        if options.inline is not None:
            self._refuse_inline(options.inline)
        found = options.inline or index.find(network.configuration)
        wanted = _plan_request(network, found, options, RequestedInterface())
        preflight = await run_preflight(self.runtime, plan_attachment(wanted).configuration)
        if not preflight.is_good:
            problems = "; ".join(preflight.all_problems)
            raise Refused(
                f"CNI configuration {found.name} ({origin_of(found)}) cannot be used: {problems}. Fix that, and "
                "create the network again"
            )
        await self._plan_endpoint(wanted)
        await self.unused_bridges.refuse(found, (*map(index.find, index.names), *self._inline_lists()))
        if self.global_scope is not None:
            self.global_scope.warn(found)
        self._warn_of_unused_pools(network, found)
        for warning in preflight.all_warnings:
            log.warning("configuration.guessed", name=found.name, file=origin_of(found), warning=warning)

    def _warn_of_unused_pools(self, network: NetworkRecord, configuration: NetworkConfigurationList) -> None:
        """Log once for each network that Docker gives its containers addresses that their plugins know nothing of."""
        unused = find_unused_pools(configuration, network.pools)
        if unused and network.id not in self._with_unused_pools:
            self._with_unused_pools.add(network.id)
            pools = [str(pool.subnet) for pool in unused]
            log.warning("network.pool_unused", network_id=network.id, pools=pools, configuration=configuration.name)


def _plan_request(
    network: NetworkRecord, configuration: NetworkConfigurationList, options: Options, requested: RequestedInterface
) -> PlanRequest:
    return PlanRequest(
        network=configuration, options=options, requested=requested, pools=network.pools, internal=network.internal
    )


def _refuse_difference(known: NetworkRecord, wanted: NetworkRecord) -> None:
    # Only names: the value of an option may be a credential.
    if known.options != wanted.options:
        different = ", ".join(different_options(known.options, wanted.options))
        raise Refused(f"network {known.id} already exists with other options: {different}")
    if (known.internal, known.pools) != (wanted.internal, wanted.pools):
        raise Refused(f"network {known.id} already exists with another --internal or other address pools")
