# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The network configuration list of a wanted network. Pure."""

import json
import re
from hashlib import sha256
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, get_objects
from cnm_bridge.core.lists.address_ranges import HOST_LOCAL, AddressRange
from cnm_bridge.core.lists.guard import guard_plugin
from cnm_bridge.operator.networks.wanted import WantedNetwork, whole_range

_VERSION: Final = "1.0.0"
"""That all plugins since 1.0.0 support."""
_PREFIX: Final = "cni-"
_SHORT: Final = re.compile(r"[A-Za-z0-9_-]{1,11}")
_DIGITS: Final = 11
_DEFAULT_ROUTES: Final = {4: "0.0.0.0/0", 6: "::/0"}


def bridge_name(name: str) -> str:
    """Return the name of a network's bridge, at most 15 characters: `cni-` and the network's name or its hash."""
    return _PREFIX + (name if _SHORT.fullmatch(name) else sha256(name.encode()).hexdigest()[:_DIGITS])


def make_list(network: WantedNetwork) -> JsonObject:
    """Return the list of a network."""
    if network.parent is None:
        plugins = _on_bridge(network)
    else:
        link = {"type": "macvlan", "master": network.parent, "mode": "bridge"}
        plugins = [{**link, **_mtu(network), "ipam": _ipam(network)}]
    return {"cniVersion": _VERSION, "name": network.name, "plugins": plugins}


def render_list(document: JsonObject) -> str:
    """Return the text of a list, as it is in its file: one line for each plugin."""
    keys = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in document.items() if key != "plugins"]
    plugins = ",\n".join(f"    {json.dumps(plugin)}" for plugin in get_objects(document, "plugins"))
    return "\n".join(("{", *keys, '  "plugins": [', plugins, "  ]", "}")) + "\n"


def _on_bridge(network: WantedNetwork) -> list[JsonValue]:
    bridge: dict[str, JsonValue] = {"type": "bridge", "bridge": bridge_name(network.name)}
    if not network.is_isolated:
        # With hairpin mode a container reaches its own published ports.
        bridge |= {"isGateway": True, "ipMasq": network.is_masqueraded, "hairpinMode": True}
    plugins: list[JsonValue] = [{**bridge, **_mtu(network), "ipam": _ipam(network)}, {"type": "firewall"}]
    if network.has_limits:
        plugins.append({"type": "bandwidth", "capabilities": {"bandwidth": True}})
    if not network.is_isolated:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
    if network.is_guarded:
        plugins.append(guard_plugin(network.allow, audit=network.is_audited))
    return plugins


def _mtu(network: WantedNetwork) -> JsonObject:
    return {} if network.mtu is None else {"mtu": network.mtu}


def _ipam(network: WantedNetwork) -> JsonObject:
    if network.has_dhcp:
        return {"type": "dhcp"}
    ranges: list[JsonValue] = [[_range(chosen, has_gateway=not network.is_isolated)] for chosen in network.ranges]
    if network.is_isolated:
        return {"type": HOST_LOCAL, "ranges": ranges}
    routes: list[JsonValue] = [{"dst": _DEFAULT_ROUTES[chosen.subnet.version]} for chosen in network.ranges]
    return {"type": HOST_LOCAL, "ranges": ranges, "routes": routes}


def _range(chosen: AddressRange, *, has_gateway: bool) -> JsonObject:
    whole = whole_range(chosen.subnet)
    limits = (
        {}
        if (chosen.first, chosen.last) == (whole.first, whole.last)
        else {"rangeStart": chosen.first, "rangeEnd": chosen.last}
    )
    gateway = {"gateway": chosen.gateway} if has_gateway else {}
    return {key: str(value) for key, value in ({"subnet": chosen.subnet} | limits | gateway).items()}
