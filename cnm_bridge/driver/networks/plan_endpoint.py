# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plans an endpoint: the plugins' input, the CNI version and the attach mode; also for `cni-bridge explain`."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from cni_bridge_state import EndpointRecord, MemoryRecord, NetworkId, NetworkRecord, ProcessRecord, RequestedInterface
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList, Runtime
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.guard import is_guarded, refuse_without_responder
from cnm_bridge.core.lists.plugins import refuse_without_ipv6
from cnm_bridge.core.options.cni_options import Options, doubtful_arguments, parse_options, with_spelling
from cnm_bridge.core.planning.attach_choice import STATIC, AttachRequest, choose_mode, depends_on_static
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment
from cnm_bridge.core.planning.records import planned_record
from cnm_bridge.core.settings import AttachOption
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.networks.lists import NetworkLists
from cnm_bridge.system.kernel import is_ipv6_on
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPlanner:
    """Plans endpoints from the lists that are on disk now."""

    store: Store
    lists: NetworkLists
    version: KnownVersion
    attach: AttachOption
    """How to attach endpoints for which `cni.attach` is not set."""
    arg_names: Collection[str]
    """The names of arguments of plugins that an operator has listed."""
    run_dir: Path
    boot_id: str
    _warned: dict[NetworkId, set[str]] = field(default_factory=dict, init=False)
    """What has been logged of a network."""

    async def plan(self, request: CreateEndpoint, caller: ProcessRecord | None) -> tuple[EndpointRecord, Plan]:
        """Return an endpoint's first record, which is not stored, and its plan.

        Raises:
            BadOption: An option is unknown, or its value is invalid.
            Refused: The network is unknown, its name is not known in time, there is no list of that name, or the list
                cannot provide what is requested.
            CniError: The list named with `cni.network` no longer exists, or its plugins do not support its version.
        """
        network, plan = await self._plan(request.network_id, request.options, request.requested)
        if is_guarded(plan.configuration):
            refuse_without_responder(
                internal=network.internal, name_servers=request.name_servers, version=self.version.current
            )
        record = planned_record(request, plan, caller, run_dir=self.run_dir, boot_id=self.boot_id, now_s=time.time())
        return record, plan

    async def resolve(self, network_id: NetworkId) -> tuple[NetworkRecord, NetworkConfigurationList]:
        """Return a network and its list for an endpoint without requested values; errors as `plan`."""
        network, plan = await self._plan(network_id, {}, RequestedInterface())
        return network, plan.configuration

    async def choose(self, wanted: PlanRequest) -> Plan:
        """Return the plan of an endpoint on this host; errors as `plan_endpoint`, or the host has no IPv6."""
        plan = await plan_endpoint(wanted, self.lists.runtime, default=self.attach, version=self.version.current)
        refuse_without_ipv6(plan.configuration, is_ipv6_on)
        return plan

    def forget(self, network_id: NetworkId) -> None:
        """Forget a network that has been removed."""
        self._warned.pop(network_id, None)

    async def _plan(
        self, network_id: NetworkId, given: Mapping[str, str], requested: RequestedInterface
    ) -> tuple[NetworkRecord, Plan]:
        network = self.store.find_network(network_id) or await self.lists.engine_import.find(network_id)
        if network is None:
            raise Refused(
                f"cni-bridge has no record of network {network_id}, and the Docker Engine did not describe it; "
                "check --docker-host, or remove the Docker network and create it again"
            )
        for option in doubtful_arguments(network.options, given, self.arg_names):
            log.warning("endpoint.argument_in_lower_case", option=option)
        given = with_spelling(given, self.arg_names)
        options = parse_options(network.options, given)
        for option in options.unknown:
            if self._is_first(network_id, option):
                log.warning("endpoint.option_unknown", option=option)
        configuration = await self.lists.find(network, options)
        wanted = plan_request(network, configuration, options, requested)
        plan = await self.choose(replace(wanted, memory=self._recall(configuration.name, options)))
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
        is_taken = any(set(memory.addresses).isdisjoint(holder.addresses) for holder in holders)
        return replace(memory, mac=None) if is_taken else memory

    def _is_first(self, network_id: NetworkId, what: str) -> bool:
        warned = self._warned.setdefault(network_id, set())
        is_first = what not in warned
        warned.add(what)
        return is_first


async def plan_endpoint(
    request: PlanRequest, runtime: Runtime, *, default: AttachOption, version: EngineVersion | None
) -> Plan:
    """Return the plan of an endpoint, with a list whose version all its plugins support.

    The plugin `static` is executed for its versions only if the attach mode depends on it. `default` is the daemon's
    mode for endpoints without the option `cni.attach`; `version` is None if it is not known.

    Raises:
        CniError: The plugins have no version in common, or one is missing.
        BadOption, Refused: As `plan_attachment` and `choose_mode`.
    """
    plan = plan_attachment(request)
    plan = replace(plan, configuration=await runtime.negotiate(plan.configuration))
    attach = AttachRequest(
        network=plan.configuration, options=request.options, default=default, version=version, has_pool=plan.has_pool
    )
    static_versions = await _static_versions(runtime) if depends_on_static(attach) else None
    return replace(plan, attach=choose_mode(attach, static_versions))


async def _static_versions(runtime: Runtime) -> Collection[str] | None:
    """Return the CNI versions that the plugin `static` supports, None if there is no such plugin."""
    try:
        return (await runtime.version(STATIC)).supported
    except CniError:
        return None


def plan_request(
    network: NetworkRecord, configuration: NetworkConfigurationList, options: Options, requested: RequestedInterface
) -> PlanRequest:
    """Return what an endpoint of a network is planned from."""
    return PlanRequest(
        network=configuration, options=options, requested=requested, pools=network.pools, internal=network.internal
    )
