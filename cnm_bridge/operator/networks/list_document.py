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


def make_list(wanted: WantedNetwork) -> JsonObject:
    """Return the list of a network."""
    plugins = _on_parent(wanted) if wanted.parent is not None else _on_bridge(wanted)
    return {"cniVersion": _VERSION, "name": wanted.name, "plugins": plugins}


def render_list(document: JsonObject) -> str:
    """Return the text of a list, as it is in its file: one line for each plugin."""
    keys = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in document.items() if key != "plugins"]
    plugins = ",\n".join(f"    {json.dumps(plugin)}" for plugin in get_objects(document, "plugins"))
    return "\n".join(("{", *keys, '  "plugins": [', plugins, "  ]", "}")) + "\n"


def _on_parent(wanted: WantedNetwork) -> list[JsonValue]:
    return [{"type": "macvlan", "master": wanted.parent, "mode": "bridge", **_mtu(wanted), "ipam": _ipam(wanted)}]


def _on_bridge(wanted: WantedNetwork) -> list[JsonValue]:
    bridge: dict[str, JsonValue] = {"type": "bridge", "bridge": bridge_name(wanted.name)}
    if not wanted.is_isolated:
        # With hairpin mode a container reaches its own published ports.
        bridge |= {"isGateway": True, "ipMasq": wanted.is_masqueraded, "hairpinMode": True}
    plugins: list[JsonValue] = [{**bridge, **_mtu(wanted), "ipam": _ipam(wanted)}, {"type": "firewall"}]
    if wanted.has_limits:
        plugins.append({"type": "bandwidth", "capabilities": {"bandwidth": True}})
    if not wanted.is_isolated:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
    if wanted.is_guarded:
        plugins.append(guard_plugin(wanted.allow, audit=wanted.is_audited))
    return plugins


def _mtu(wanted: WantedNetwork) -> JsonObject:
    return {} if wanted.mtu is None else {"mtu": wanted.mtu}


def _ipam(wanted: WantedNetwork) -> JsonObject:
    if wanted.has_dhcp:
        return {"type": "dhcp"}
    ranges: list[JsonValue] = [[_range(one, has_gateway=not wanted.is_isolated)] for one in wanted.ranges]
    if wanted.is_isolated:
        return {"type": HOST_LOCAL, "ranges": ranges}
    routes: list[JsonValue] = [{"dst": _DEFAULT_ROUTES[one.subnet.version]} for one in wanted.ranges]
    return {"type": HOST_LOCAL, "ranges": ranges, "routes": routes}


def _range(one: AddressRange, *, has_gateway: bool) -> JsonObject:
    whole = whole_range(one.subnet)
    limits = (
        {} if (one.first, one.last) == (whole.first, whole.last) else {"rangeStart": one.first, "rangeEnd": one.last}
    )
    gateway = {"gateway": one.gateway} if has_gateway else {}
    return {key: str(value) for key, value in ({"subnet": one.subnet} | limits | gateway).items()}
