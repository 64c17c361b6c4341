# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Changes of a list: other plugins, arguments in `args.cni` (CNI CONVENTIONS), and the list of mode *hybrid*; pure.

In mode *hybrid* the IPAM plugin runs at CreateEndpoint, all others at Join. The first plugin of most lists delegates
IPAM: it executes its IPAM plugin and configures the link with the result (CNI SPEC §4). We execute the IPAM plugin
ourselves, with the input that the first plugin would give it, so that Docker learns the addresses. At Join the first
plugin receives the same addresses from the IPAM plugin `static`:

```
list on disk:      bridge (ipam: host-local) ─ firewall
CreateEndpoint:    host-local                               the reservation
Join:              bridge (ipam: static) ─ firewall         the chain
DEL:               firewall ─ bridge (ipam: static) ─ host-local
```

A record has the list on disk and the result of the IPAM plugin; all that DEL needs is derived from them here. So these
functions are a part of the stored format: for the same arguments, every version must return the same. If a container's
identity was added to the list at Join, the record also has what the IPAM plugin received before.
"""

from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_object
from cni_invoker import NetworkConfigurationList, PluginConfiguration, Result

_ADDRESSES: Final = "ips"


def with_plugins(network: NetworkConfigurationList, documents: Sequence[JsonObject]) -> NetworkConfigurationList:
    """Return a list with other plugins, by their documents."""
    document = {**network.document, "plugins": list(documents)}
    return NetworkConfigurationList.from_document(document, source=network.source)


def cni_args_of(plugin: JsonObject) -> JsonObject:
    """Return `args.cni` of a plugin's document; empty if it has none."""
    return find_object(find_object(plugin, "args") or {}, "cni") or {}


def with_cni_args(plugin: JsonObject, values: JsonObject) -> JsonObject:
    """Return a plugin's document with values added to `args.cni`."""
    return {**plugin, "args": {**(find_object(plugin, "args") or {}), "cni": {**cni_args_of(plugin), **values}}}


def without_address_args(plugin: JsonObject) -> JsonObject:
    """Return a plugin's document without requests for addresses in `args.cni`."""
    others = {key: value for key, value in cni_args_of(plugin).items() if key != _ADDRESSES}
    if len(others) == len(cni_args_of(plugin)):
        return plugin
    return {**plugin, "args": {**(find_object(plugin, "args") or {}), "cni": others}}


RESERVATION: Final = 0
"""The index of the IPAM plugin in a list that has a reservation."""

_MAC: Final = "mac"
_TAKE_MAC: Final = frozenset({"bridge", "macvlan", "tap"})
"""Plugins with the capability `mac`, also if the list does not declare it (read in plugins 1.1.1 and 1.9.1)."""
_ADDRESS_ARGS: Final = frozenset({"IP", "GATEWAY"})
"""CNI_ARGS that `static` reads; it would add them to the reserved addresses."""
_WITH_ROUTES: Final = "1.0.0"
"""A version of results in which routes do not belong to an address family, as in the configuration of `static`."""


def with_reservation(
    network: NetworkConfigurationList, reserved: Result | None, received: JsonObject | None = None
) -> NetworkConfigurationList:
    """Return a list with the IPAM plugin of its first plugin as a plugin of its own, in front of all others.

    The IPAM plugin receives the configuration of the first plugin, as CNI SPEC §4 says, except for `type` and the
    capabilities that are not about addresses. After the reservation, the first plugin has `static` as IPAM plugin, and
    nothing in its configuration requests addresses: `static` would add these to the reserved ones. It receives the MAC
    that Docker knows.

    `reserved` is None before the IPAM plugin has completed. `received` is what it received, if the list was changed
    later.
    """
    main, *others = network.plugins
    first = main.document if reserved is None else with_static(main, reserved)
    ipam = ipam_configuration(main) if received is None else received
    return with_plugins(network, [ipam, first, *(other.document for other in others)])


def without_addresses(args: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return CNI_ARGS without those that request addresses."""
    return tuple((key, value) for key, value in args if key not in _ADDRESS_ARGS)


def ipam_configuration(main: PluginConfiguration) -> JsonObject:
    """Return the configuration that the IPAM plugin of a plugin receives, as a plugin of its own."""
    document: dict[str, JsonValue] = {**main.document, "type": main.ipam_type}
    document.pop("capabilities", None)
    if _ADDRESSES in main.capabilities:
        document["capabilities"] = {_ADDRESSES: True}
    return document


def with_static(main: PluginConfiguration, reserved: Result) -> JsonObject:
    """Return the configuration of the first plugin with `static` as IPAM plugin, which gives a result again."""
    capabilities = (main.capabilities - {_ADDRESSES}) | ({_MAC} if main.type in _TAKE_MAC else set())
    return {
        **without_address_args(main.document),
        "ipam": _static(reserved),
        "capabilities": dict.fromkeys(sorted(capabilities), True),
    }


def _static(reserved: Result) -> JsonObject:
    """Return the configuration with which `static` gives a result again."""
    addresses: list[JsonValue] = [
        {"address": str(ip.address), **({"gateway": str(ip.gateway)} if ip.gateway else {})} for ip in reserved.ips
    ]
    told = reserved.converted(_WITH_ROUTES).document
    return {"type": "static", "addresses": addresses, **{key: told[key] for key in ("routes", "dns") if told.get(key)}}
