# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The planner: derives the plugins' input from a network, an endpoint's requested values and a list; pure.

CreateEndpoint executes the plan, CreateNetwork uses it to refuse what cannot work, and `cni-bridge explain` shows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, render_json
from cni_bridge_state import AttachmentRecord, AttachMode, MemoryRecord, PoolRecord, RequestedInterface, StickyRecord
from cni_invoker import NetworkConfigurationList
from cni_invoker.documents.checks import check_arguments
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.endpoint import STAGING_IFNAME
from cnm_bridge.core.errors import NULL_IPAM, Refused
from cnm_bridge.core.lists.address_ranges import refuse_other_pools, refuse_outside
from cnm_bridge.core.lists.dhcp import find_dhcp
from cnm_bridge.core.lists.guard import with_guard, without_gateway
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.options.values import WantedAddress
from cnm_bridge.core.planning.addressing import (
    fixed_addresses,
    plan_addresses,
    refuse_sticky,
    requested_addresses,
    with_labels,
)
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.identity import ANY_ARGS
from cnm_bridge.core.planning.mac import (
    can_choose_mac,
    client_mac,
    endpoint_mac,
    plan_mac,
    plugins_mac,
    refuse_fixed_mac,
    refuse_multicast,
)

_DIGITS: Final = 16
_IPV6: Final = 6

_WHO_HELPS: Final[Mapping[str, str]] = {
    "bandwidth": 'add { "type": "bandwidth", "capabilities": { "bandwidth": true } } to its plugins',
    "egress": 'cni.egress.allow of a container needs a guarded network, with "capabilities": { "egress": true } at the '
    "plugin egress if the list has it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a plan is made for.

    Attributes:
        network: The list on disk.
        options: The network's options, overridden by the endpoint's.
        requested: The values that Docker chose; empty for a network without endpoints.
        memory: What the last container with the same key had, None if there was none.
    """

    network: NetworkConfigurationList
    options: Options
    requested: RequestedInterface
    pools: Sequence[PoolRecord]
    internal: bool
    memory: MemoryRecord | None = None

    @property
    def without_ipv6(self) -> bool:
        """Whether IPv6 is disabled, on the link by its options or in the container.

        Docker does not tell the latter, but from Engine 28 on its IPAM then chooses no IPv6 address. An engine to which
        an IPv6 address is answered in spite of the option does not start the container (28.5: no route to the IPv6
        gateway; 29: the address cannot be released).
        """
        no_address = self.requested.address_ipv6 is None
        return self.options.disables_ipv6 or (no_address and any(pool.subnet.version == _IPV6 for pool in self.pools))

    @property
    def has_pool(self) -> bool:
        """Whether Docker's own IPAM chooses addresses."""
        return bool(self.pools or self.requested.address or self.requested.address_ipv6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plugins' input, and the result that they are expected to produce.

    Attributes:
        configuration: The list, with the values that must be in a plugin's configuration.
        without_ipv6: Whether the link has no IPv6, although the list may give IPv6 addresses.
        passes_mac: Whether the plugins receive the MAC that Docker chose.
        own_mac: The MAC that Docker learns before the link exists, if it chose none: the one that the list gives, or
            else one that this driver made.
        source_digest: A digest of the list on disk, None if it is not on disk.
        sticky: The key, and what the plugins are asked for because of it; None without a key.
        internal: Whether the container gets no gateway, because the network is internal and not guarded.
    """

    configuration: NetworkConfigurationList
    args: tuple[tuple[str, str], ...] = ()
    capability_args: JsonObject = field(default_factory=dict, hash=False)
    addresses: tuple[WantedAddress, ...] = ()
    requested: RequestedInterface = RequestedInterface()  # noqa: RUF009 - frozen
    options: Options = Options()  # noqa: RUF009 - frozen
    without_ipv6: bool = False
    passes_mac: bool = False
    attach: AttachChoice = AttachChoice(mode=AttachMode.MOVE, reason="it works with every engine")  # noqa: RUF009 - frozen
    own_mac: str | None = None
    source_digest: str | None = None
    sticky: StickyRecord | None = None
    internal: bool = False
    has_pool: bool = False

    @property
    def ifname(self) -> str:
        """The name that plugins give the link; in mode *move* libnetwork changes it later."""
        if self.attach.mode.in_sandbox:
            return self.options.ifname or f"{self.options.ifname_prefix}0"
        return STAGING_IFNAME

    @property
    def fixed_addresses(self) -> frozenset[IPv4Address | IPv6Address]:
        """The addresses that are known before an IPAM plugin runs; another endpoint may still have them."""
        return fixed_addresses(self.configuration, self.args, self.capability_args)


def plan_attachment(request: PlanRequest) -> Plan:
    """Return the plan for an endpoint, without a negotiated version and a mode; refuse what the list cannot do."""
    network = request.network
    try:
        return _plan(request)
    except JsonError as exc:
        raise Refused(f"CNI configuration {network.name} ({network.source}) cannot be used: {exc}") from exc


def configuration_digest(document: JsonObject) -> str:
    """Return what an endpoint's record keeps of the content of its list: equal for equal content."""
    return sha256(render_json(document)).hexdigest()[:_DIGITS]


def _plan(request: PlanRequest) -> Plan:
    options, requested = request.options, request.requested
    network = with_guard(request.network, options.egress.allow, audit=options.egress.audit)
    internal = without_gateway(network, internal=request.internal)
    refuse_other_pools(network, request.pools)
    if not request.has_pool and not options.capabilities:  # such as ipRanges
        refuse_outside(network, map(_ip, options.ips), str(network.source))
    addresses = _merge(requested, options.ips)
    is_reserved = _are_reserved(addresses, request.pools)
    sticky = _plan_sticky(request, addresses)
    asked = addresses if sticky is None or not sticky.addresses else tuple(map(ip_address, sticky.addresses))
    addressing = plan_addresses(network, asked, request.pools, internal=internal, is_reserved=is_reserved)
    configuration = addressing.configuration
    if options.client_id is not None and find_dhcp(configuration) is None:
        reason = "its IPAM plugin is not dhcp" if find_dhcp(network) is None else "the address is given"
        raise Refused(f"CNI configuration {network.name} has no use for cni.dhcp.client-id: {reason}; leave it out")
    capabilities = _spell_capabilities(configuration, options.capabilities)
    args = {**dict(options.args), **dict(addressing.args)}
    capability_args = {**capabilities, **addressing.capability_args}
    mac_plan = None
    listed_mac = plugins_mac(configuration, args, capability_args)
    mac = requested.mac
    if mac is None and listed_mac is None and options.client_id is not None:
        mac = client_mac(network.name, options.client_id)
    if sticky is not None and (mac or listed_mac):
        sticky = replace(sticky, mac=None)
    mac = mac or (None if sticky is None else sticky.mac)
    if mac:
        refuse_multicast(mac)
        refuse_fixed_mac(network)
        mac_plan = plan_mac(configuration, mac)
        if mac_plan is not None:
            args |= dict(mac_plan.args)
            capability_args |= mac_plan.capability_args
            plugins_mac(configuration, args, capability_args)
    if options.labels:
        configuration = with_labels(configuration, options.labels)
    return Plan(
        configuration=configuration,
        args=_checked((*ANY_ARGS, *args.items())) if args else (),
        capability_args=capability_args,
        addresses=addresses,
        requested=requested,
        options=options,
        source_digest=configuration_digest(request.network.document),
        without_ipv6=request.without_ipv6,
        passes_mac=mac_plan is not None and bool(requested.mac),
        own_mac=None if requested.mac else listed_mac or (mac if mac_plan is not None or sticky is not None else None),
        sticky=sticky,
        internal=internal,
        has_pool=request.has_pool,
    )


def _plan_sticky(request: PlanRequest, addresses: Sequence[WantedAddress]) -> StickyRecord | None:
    """Return what plugins are asked for because of a key: no address if the user or the list asks for others."""
    options, memory = request.options, request.memory
    if options.sticky is None:
        return None
    refuse_sticky(request.network, has_pool=request.has_pool)
    if memory is None:
        return StickyRecord(key=options.sticky)
    given = requested_addresses(request.network, options.args, options.capabilities)
    return StickyRecord(
        key=options.sticky,
        addresses=() if addresses or given else memory.addresses,
        mac=memory.mac if can_choose_mac(request.network) else None,
    )


def _checked(args: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return CNI_ARGS that a process can receive."""
    try:
        check_arguments(args)
    except InvalidParameter as exc:
        raise Refused(f"cni.args: {exc}") from exc
    return args


def with_endpoint_mac(plan: Plan, endpoint_id: str) -> Plan:
    """Return the plan of a link whose addresses are reserved, with the MAC that Docker learns before the link exists.

    It is `endpoint_mac`, unless one was chosen. Plugins that take one receive it (`lists/changes.py`).
    """
    if plan.requested.mac or plan.own_mac or not can_choose_mac(plan.configuration):
        return plan
    mac = endpoint_mac(endpoint_id)
    return replace(plan, own_mac=mac, capability_args={**plan.capability_args, "mac": mac})


def with_attachment(plan: Plan, attachment: AttachmentRecord) -> Plan:
    """Return the plan of an endpoint whose attachment asks for less because of its key (`without_request`)."""
    asks_mac = attachment.sticky is not None and attachment.sticky.mac is not None
    had_mac = plan.sticky is not None and plan.sticky.mac is not None
    return replace(
        plan,
        configuration=NetworkConfigurationList.from_document(
            attachment.configuration, source=plan.configuration.source
        ),
        args=attachment.args,
        capability_args=attachment.capability_args,
        own_mac=None if had_mac and not asks_mac else plan.own_mac,
        sticky=attachment.sticky,
    )


def _ip(address: WantedAddress) -> IPv4Address | IPv6Address:
    return address.ip if isinstance(address, IPv4Interface | IPv6Interface) else address


def _are_reserved(addresses: Sequence[WantedAddress], pools: Sequence[PoolRecord]) -> bool:
    """Return whether this driver has reserved the addresses already, as Docker's IPAM driver."""
    own = [pool.subnet for pool in pools if pool.is_own]
    others = [address for address in addresses if not any(_ip(address) in subnet for subnet in own)]
    if own and others:
        raise Refused(
            f"{others[0]} is not an address of Docker's IPAM driver cni-bridge, which gives the others; make the "
            "network with a --subnet of its family, and give the address with --ip or --ip6"
        )
    return bool(own)


def _merge(requested: RequestedInterface, ips: Sequence[WantedAddress]) -> tuple[WantedAddress, ...]:
    """Return all requested addresses, Docker's first."""
    chosen = [address for address in (requested.address, requested.address_ipv6) if address is not None]
    for address in ips:
        for own in chosen:
            if own.version == address.version and own.ip != _ip(address):
                raise Refused(
                    f"Docker's IPAM chose {own}, and cni.ips asks for {address}; give the address with --ip or --ip6 "
                    f"instead, or make the network with {NULL_IPAM}"
                )
    versions = {own.version for own in chosen}
    return (*chosen, *(address for address in ips if address.version not in versions))


def _spell_capabilities(network: NetworkConfigurationList, requested: JsonObject) -> JsonObject:
    """Return the requested capabilities under the names that plugins declare; the docker command lowers their case."""
    declared = {capability for plugin in network.plugins for capability in plugin.capabilities}
    spelt = {capability.lower(): capability for capability in declared}
    named = {}
    for capability, value in requested.items():
        name = capability if capability in declared else spelt.get(capability)
        if name is None:
            how = _WHO_HELPS.get(
                capability, f'the plugin that understands it must have "capabilities": {{ "{capability}": true }}'
            )
            raise Refused(
                f"CNI configuration {network.name} ({network.source}) has no plugin with the capability "
                f"{capability}; {how}"
            )
        named[name] = value
    return named
