# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Passes requested addresses to the plugins of a list; pure.

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
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_interface
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_object, get_objects, get_strings
from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import NULL_IPAM, Refused
from cnm_bridge.core.lists.address_ranges import RANGED
from cnm_bridge.core.lists.changes import cni_args_of, with_cni_args, with_plugins
from cnm_bridge.core.options.quantities import WantedAddress

_READ_ARGS: Final = RANGED | {"static"}
_REPLACED_BY_STATIC: Final = frozenset({None, "dhcp"})
_RESERVES_NONE: Final = frozenset({"weave-ipam", "weave-net", "whereabouts"})
"""Plugins that reserve no requested address: whereabouts 0.5.4 refuses `IP=ADDRESS`, also at DEL, and assigns
`IP=ADDRESS/LENGTH` without reserving it; Weave 2.8.1, whose `weave-net` needs no IPAM plugin, reads no address."""
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}
_USUAL_PREFIXES: Final = {4: 24, 6: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressing:
    """The parts of the plugins' input that carry requested values.

    Attributes:
        configuration: The list, with the values that must be in a plugin's configuration.
        args: Additional CNI_ARGS.
        capability_args: Additional capability arguments, by capability.
    """

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

    Args:
        network: The list.
        requested: The addresses.
        pools: Docker's pools, which have the gateways if the list has no IPAM plugin.
        internal: Whether the network is internal: then there are no default routes.
        is_reserved: Whether the addresses are reserved already.

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
