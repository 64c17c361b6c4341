# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Passes requested addresses to the plugins of a list, and asks for those that belong to a key; pure.

There are several ways, none of which all plugins support (CNI CONVENTIONS; measured with plugins 1.1.1 and 1.9.1):

| the list has                          | the addresses go to                                             |
| ------------------------------------- | --------------------------------------------------------------- |
| a plugin with the capability `ips`    | `runtimeConfig.ips`                                             |
| the IPAM plugin host-local, static, … | `args.cni.ips`: they read it                                    |
| no IPAM plugin, or dhcp               | a `static` IPAM part that takes its place                       |
| whereabouts, or Weave's own           | nowhere, and are refused: it would not reserve them             |
| any other IPAM plugin                 | `args.cni.ips` and `CNI_ARGS IP=`: the plugin reads either      |

Addresses that this driver has reserved before, as Docker's IPAM driver, always go to a `static` IPAM part: another
plugin would reserve them a second time.

Only one of them is used each time, because host-local combines the addresses from all of them and requests each. `plan`
checks whether the plugins assigned what was requested.

With a key (`cni.sticky`) plugins are asked for what the last container with it had. Nothing is reserved between the two
(docs/decisions/stickiness-is-a-memory.md). If another container has the address by now, the IPAM plugin refuses it, and
the next attempt asks for none.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_interface
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_object, get_object, get_objects, get_strings
from cni_bridge_state import EndpointRecord, PoolRecord, StickyRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import NULL_IPAM, Refused, endpoint_option
from cnm_bridge.core.lists.address_ranges import RANGED
from cnm_bridge.core.lists.changes import cni_args_of, with_cni_args, with_plugins, without_address_args
from cnm_bridge.core.options.cni_options import STICKY
from cnm_bridge.core.options.values import WantedAddress

_READ_ARGS: Final = RANGED | {"static"}
_REPLACED_BY_STATIC: Final = frozenset({None, "dhcp"})
_RESERVES_NONE: Final = frozenset({"weave-ipam", "weave-net", "whereabouts"})
"""Plugins that reserve no requested address: whereabouts 0.5.4 refuses `IP=ADDRESS`, also at DEL, and assigns
`IP=ADDRESS/LENGTH` without reserving it; Weave 2.8.1, whose `weave-net` needs no IPAM plugin, reads no address."""
_TAKE_NO_REQUEST: Final[Mapping[str | None, str]] = {
    None: "it has no IPAM plugin; give cni.ips and --mac-address",
    "dhcp": "only its DHCP server can give the same address again; give "
    + endpoint_option("cni.dhcp.client-id", "KEY"),
    "static": "IPAM plugin static gives all containers the same addresses; give cni.ips and --mac-address",
    **{name: f"plugin {name} does not reserve an address that is asked for; leave it out" for name in _RESERVES_NONE},
}
"""The plugin that gives the addresses → why it cannot be asked for one, and what to do."""
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}
_USUAL_PREFIXES: Final = {4: 24, 6: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressing:
    """The parts of the plugins' input that carry requested values; the list has those that fit nowhere else."""

    configuration: NetworkConfigurationList
    args: tuple[tuple[str, str], ...] = ()
    capability_args: JsonObject = field(default_factory=dict, hash=False)


def plan_addresses(
    network: NetworkConfigurationList,
    requested: Sequence[WantedAddress],
    pools: Sequence[PoolRecord],
    *,
    internal: bool,
    is_reserved: bool = False,
) -> Addressing:
    """Return the input that passes the requested addresses to the plugins of a list.

    Docker's pools have the gateways if the list has no IPAM plugin. An internal network gets no default routes.

    Raises:
        Refused: An address needs a prefix length, or the IPAM plugin reserves no requested address.
    """
    if not requested:
        return Addressing(configuration=network)
    texts: list[JsonValue] = [str(address) for address in requested]
    index = next((i for i, plugin in enumerate(network.plugins) if plugin.ipam_type), 0)
    ipam_type = None if is_reserved else network.plugins[index].ipam_type
    giver = ipam_type or network.plugins[index].type
    if not is_reserved and giver in _RESERVES_NONE:
        raise Refused(
            f"CNI configuration {network.name} cannot give a container a requested address ({requested[0]}): its "
            f"plugin {giver} would not reserve it, and may give it to another one; leave out cni.ips and --ip, and "
            f"make the network with {NULL_IPAM}"
        )
    if ipam_type in _REPLACED_BY_STATIC or ipam_type == "static":
        _require_prefixes(network, requested)
    if ipam_type not in _REPLACED_BY_STATIC and any("ips" in plugin.capabilities for plugin in network.plugins):
        return Addressing(configuration=network, capability_args={"ips": texts})
    if ipam_type in _REPLACED_BY_STATIC:
        return Addressing(configuration=_with_static(network, index, requested, pools, internal=internal))
    documents = [plugin.document for plugin in network.plugins]
    documents[index] = with_cni_args(documents[index], {"ips": texts})
    extended = with_plugins(network, documents)
    if ipam_type in _READ_ARGS:
        return Addressing(configuration=extended)
    return Addressing(configuration=extended, args=(("IP", str(requested[0]).partition("/")[0]),))


def fixed_addresses(
    network: NetworkConfigurationList, args: Iterable[tuple[str, str]], capability_args: JsonObject
) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses of an attachment that are known before an IPAM plugin runs; another one may have them."""
    return static_addresses(network) | requested_addresses(network, args, capability_args)


def static_addresses(network: NetworkConfigurationList) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses that a list assigns to every container without reserving them: those of `static`."""
    return parse_addresses(
        str(given.get("address"))
        for plugin in network.plugins
        if plugin.ipam_type == "static"
        for given in get_objects(find_object(plugin.document, "ipam") or {}, "addresses")
    )


def requested_addresses(
    network: NetworkConfigurationList, args: Iterable[tuple[str, str]], capability_args: JsonObject
) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses that a list, CNI_ARGS and capability args request, see the table above."""
    given = (capability_args, *(cni_args_of(plugin.document) for plugin in network.plugins))
    by_argument = (text for key, value in args if key == "IP" for text in value.split(","))
    return parse_addresses((*(text for values in given for text in get_strings(values, "ips")), *by_argument))


def parse_addresses(texts: Iterable[str]) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses in texts, with or without a prefix; the plugins themselves report invalid ones."""
    addresses = set()
    for text in texts:
        with suppress(ValueError):
            addresses.add(ip_interface(text).ip)
    return frozenset(addresses)


def with_labels(network: NetworkConfigurationList, labels: Sequence[tuple[str, str]]) -> NetworkConfigurationList:
    """Return the list with labels added to `args.cni.labels` of its plugins; a label with the same key is replaced."""
    values = [{"key": key, "value": value} for key, value in labels]
    given = dict(labels)
    documents = []
    for plugin in network.plugins:
        own = get_objects(cni_args_of(plugin.document), "labels")
        kept = [label for label in own if label.get("key") not in given]
        documents.append(with_cni_args(plugin.document, {"labels": [*kept, *values]}))
    return with_plugins(network, documents)


def _with_static(
    network: NetworkConfigurationList,
    index: int,
    requested: Sequence[WantedAddress],
    pools: Sequence[PoolRecord],
    *,
    internal: bool,
) -> NetworkConfigurationList:
    """Return the list with `static` as its IPAM plugin; its routes and name servers are kept."""
    documents: list[JsonObject] = [plugin.document for plugin in network.plugins]
    ipam = dict(find_object(documents[index], "ipam") or {})
    gateways = {pool.subnet.version: pool.gateway for pool in pools if pool.gateway is not None}
    routes = list(get_objects(ipam, "routes"))
    addresses: list[JsonValue] = []
    for address in requested:
        gateway = gateways.get(address.version)
        addresses.append({"address": str(address), **({"gateway": str(gateway)} if gateway else {})})
        default = _DEFAULT_ROUTES[address.version]
        if gateway and not internal and all(route.get("dst") != default for route in routes):
            routes.append({"dst": default, "gw": str(gateway)})
    ipam |= {"type": "static", "addresses": addresses, **({"routes": routes} if routes else {})}
    documents[index] = {**documents[index], "ipam": ipam}
    return with_plugins(network, documents)


def _require_prefixes(network: NetworkConfigurationList, requested: Sequence[WantedAddress]) -> None:
    for address in requested:
        if not isinstance(address, IPv4Interface | IPv6Interface):
            raise Refused(
                f"CNI configuration {network.name} has no subnet that contains {address}; "
                f"add a prefix length, such as cni.ips={address}/{_USUAL_PREFIXES[address.version]}"
            )


def refuse_sticky(network: NetworkConfigurationList, *, has_pool: bool) -> None:
    """Refuse a key on a network whose addresses cannot be asked for."""
    if has_pool:
        raise Refused(
            f"{STICKY} is not possible: Docker's IPAM chooses the addresses of this network; give --ip, or make the "
            f"network with {NULL_IPAM}"
        )
    ipam_type = next((plugin.ipam_type for plugin in network.plugins if plugin.ipam_type), None)
    main = network.plugins[0].type
    reason = _TAKE_NO_REQUEST.get(ipam_type or (main if main in _TAKE_NO_REQUEST else None))
    if reason is not None:
        raise Refused(f"{STICKY} is not possible for CNI configuration {network.name}: {reason}")


def without_request(record: EndpointRecord, *, keeps_mac: bool) -> EndpointRecord:
    """Return a record whose plugins are asked for no address because of its key, and for its MAC only if `keeps_mac`.

    `StickyRecord.addresses` stays: `EndpointRecord.missed_addresses` shows what it does not get.
    """
    attachment, sticky = record.attachment, record.attachment.sticky
    if sticky is None:
        return record
    dropped, snapshot = {"IP", "ips"}, record.snapshot
    if sticky.mac is not None and not keeps_mac:
        dropped |= {"MAC", "mac"}
        sticky = replace(sticky, mac=None)
        snapshot = None if snapshot is None else {**snapshot, "link": {**get_object(snapshot, "link"), "mac": None}}
    plugins = get_objects(attachment.configuration, "plugins")
    attachment = replace(
        attachment,
        configuration={**attachment.configuration, "plugins": [*map(without_address_args, plugins)]},
        args=tuple((key, value) for key, value in attachment.args if key not in dropped),
        capability_args={key: value for key, value in attachment.capability_args.items() if key not in dropped},
        sticky=sticky,
    )
    return replace(record, attachment=attachment, snapshot=snapshot)


def is_asking(sticky: StickyRecord | None) -> bool:
    """Return whether plugins are first asked for addresses because of a key."""
    return sticky is not None and bool(sticky.addresses)
