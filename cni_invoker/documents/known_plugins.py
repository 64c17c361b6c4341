# SPDX-License-Identifier: Apache-2.0
"""What is known of the CNI project's plugins: the keys that they refuse or ignore, and which find rules by address.

Only a key that every release from 1.1.1 to 1.9.1 refuses is a problem, so that ADD is not the first to refuse it. A key
that none of them reads, and that is nearly one that they read, is in doubt: they ignore it.
`tests/kernel/test_plugin_keys.py` has the plugins themselves refuse and accept each case. Other plugins are left alone.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cni_invoker.documents.checks import check_ifname
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, show
from cni_invoker.errors import InvalidParameter

_RANGE: Final = ("subnet", "rangeStart", "rangeEnd", "gateway")
_KEYS: Final[Mapping[str, Mapping[type, tuple[str, ...]]]] = {
    "bridge": {
        bool: ("isGateway", "isDefaultGateway", "forceAddress", "ipMasq", "hairpinMode", "promiscMode"),
        int: ("mtu", "vlan"),
        str: ("bridge",),
        dict: ("ipam",),
    },
    "macvlan": {int: ("mtu",), str: ("master", "mode"), dict: ("ipam",)},
    "ipvlan": {int: ("mtu",), str: ("master", "mode"), dict: ("ipam",)},
    "ptp": {bool: ("ipMasq",), int: ("mtu",), dict: ("ipam",)},
    "vlan": {int: ("mtu", "vlanId"), str: ("master",), dict: ("ipam",)},
    "host-device": {str: ("device", "hwaddr", "kernelpath", "pciBusID"), dict: ("ipam",)},
    "portmap": {bool: ("snat",), int: ("markMasqBit",)},
    "bandwidth": {int: ("ingressRate", "ingressBurst", "egressRate", "egressBurst")},
    "tuning": {bool: ("promisc", "allmulti"), int: ("mtu",), str: ("mac", "dataDir"), dict: ("sysctl",)},
    "firewall": {str: ("backend", "iptablesAdminChainName", "firewalldZone", "ingressPolicy")},
    "host-local": {str: (*_RANGE, "dataDir", "resolvConf"), list: ("ranges", "routes")},
}
"""Plugin → type → its keys of that type, as in the plugin's Go structures. null stands for an absent key."""
_FURTHER_KEYS: Final[Mapping[str, str]] = {
    "bandwidth": "shapedSubnets unshapedSubnets",
    "bridge": "disableContainerInterface enabledad ipMasqBackend mac macspoofchk portIsolation preserveDefaultVlan "
    "vlanTrunk",
    "dhcp": "daemonSocketPath priority provide request",
    "dummy": "",
    "ipvlan": "linkInContainer",
    "macvlan": "bcqueuelen linkInContainer mac",
    "portmap": "backend conditionsV4 conditionsV6 externalSetMarkChain masqAll",
    "ptp": "ipMasqBackend",
    "sbr": "addSourceHints gateways table",
    "static": "addresses routes",
    "tap": "bridge group mac mtu multiQueue owner selinuxContext",
    "tuning": "txQLen",
    "vlan": "linkInContainer",
    "vrf": "table vrfname",
}
"""Plugin → the further keys that any release up to 1.9.1 reads."""
KNOWN_PLUGINS: Final = _KEYS.keys() | _FURTHER_KEYS.keys()
_COMMON_KEYS: Final = ("args", "capabilities", "cniVersion", "dns", "ipam", "name", "runtimeConfig", "type")
_NEARLY: Final = 0.75
"""How similar a mistyped key is (`SequenceMatcher.ratio`); less similar keys are operators' own notes."""
_NAMES: Final = {bool: "true or false, without quotes", int: "a whole number", str: "a string", dict: "an object"}
_ROUTES_BY_GATEWAY: Final = frozenset({"bridge", "host-device", "ipvlan", "macvlan", "ptp", "vlan"})
"""Plugins that add each route of the result through the address's gateway, which must be on the link."""


def find_key_problems(document: JsonObject, user: str) -> Iterator[str]:
    """Yield what the plugin refuses in its configuration, in words that name the key, and say what to write.

    Args:
        document: The configuration, or the part `ipam` for an IPAM plugin.
        user: The plugin that executes it; "" for a plugin of the list.
    """
    kind = document.get("type")
    keys = _KEYS.get(kind, {}) if isinstance(kind, str) else {}
    spelt = {key.lower(): key for several in keys.values() for key in several}
    for key in document:
        right = spelt.get(key.lower(), key)
        if right != key:
            yield f'"{key}" must be written "{right}"'
    is_typed = True
    for wanted, several in keys.items():
        for key in several:
            value = document.get(key)
            is_right = isinstance(value, (list, tuple) if wanted is list else wanted)
            if value is not None and not (is_right and (wanted is bool or type(value) is not bool)):
                is_typed = False
                yield f'"{key}" must be {_NAMES.get(wanted, "an array")}, not {show(value)}'
    if not is_typed:
        return
    if kind == "bridge":
        yield from _problems_of_name(document.get("bridge"))
    elif kind == "host-local" and user:
        yield from _problems_of_ranges(document)
    ipam = document.get("ipam")
    if kind in _ROUTES_BY_GATEWAY and isinstance(ipam, Mapping) and ipam.get("type") == "host-local":
        yield from _problems_of_gateway(ipam, needs_default=document.get("isDefaultGateway") is True)


def find_key_doubts(document: JsonObject) -> Iterator[str]:
    """Yield the mistyped keys of a plugin's configuration, or of the part `ipam`: the plugin ignores them."""
    kind = document.get("type")
    if not isinstance(kind, str) or kind not in KNOWN_PLUGINS:
        return
    typed = (key for several in _KEYS.get(kind, {}).values() for key in several)
    yield from _doubts(document, (*typed, *_FURTHER_KEYS.get(kind, "").split(), *_COMMON_KEYS))
    if kind == "host-local":
        for one in _ranges(document):
            yield from _doubts(one, _RANGE) if one is not document else ()


def _doubts(document: JsonObject, known: Collection[str]) -> Iterator[str]:
    from difflib import get_close_matches  # noqa: PLC0415  # only a check of a list needs it

    lower = {key.lower(): key for key in known}
    for key in document:
        near = () if key.lower() in lower else get_close_matches(key.lower(), lower, n=1, cutoff=_NEARLY)
        if near:
            yield f'ignores the key "{key}"; did you mean "{lower[near[0]]}"?'


def _problems_of_name(name: JsonValue) -> Iterator[str]:
    try:
        if isinstance(name, str) and name:  # without one, the plugin has a default
            check_ifname(name)
    except InvalidParameter:
        yield f'"bridge": {name!r} is not a valid link name: 1 to 15 bytes, without slash, colon and white space'


def _ranges(ipam: JsonObject) -> Iterator[JsonObject]:
    if ipam.get("subnet"):
        yield ipam
    several = ipam.get("ranges")
    for one in several if isinstance(several, list | tuple) else ():
        yield from _objects(one)


def _problems_of_ranges(ipam: JsonObject) -> Iterator[str]:
    for one in _ranges(ipam):
        text = one.get("subnet")
        if not isinstance(text, str):
            continue
        address, slash, _ = text.partition("/")
        subnet = _find_subnet(text)
        if subnet is None or not slash:
            yield f'"subnet": {text!r} is not a subnet; write it with the length of its prefix, such as 10.22.0.0/16'
        elif subnet.network_address != ip_address(address):
            yield f'"subnet": {text!r} is the address of a host; the subnet is {subnet}'
        elif subnet.prefixlen > subnet.max_prefixlen - 2:
            longest = subnet.max_prefixlen - 2
            yield f'"subnet": {text!r} has no room for containers; its prefix must be /{longest} or shorter'
        for key in _RANGE[1:]:
            value = one.get(key)
            if isinstance(value, str) and value and _find_address(value) is None:
                yield f'"{key}": {value!r} is not an IP address'


def _problems_of_gateway(ipam: JsonObject, *, needs_default: bool) -> Iterator[str]:
    """Yield a gateway that is on no link of the container, if a route needs it."""
    ranges = [(subnet, one) for one in _ranges(ipam) if (subnet := _find_subnet(one.get("subnet"))) is not None]
    for version in (4, 6):
        subnets = [subnet for subnet, _ in ranges if subnet.version == version]
        gateways = [_find_address(one.get("gateway")) for subnet, one in ranges if subnet.version == version]
        outside = [one for one in gateways if one is not None and not any(one in subnet for subnet in subnets)]
        routes = [
            (destination, route.get("gw"))
            for route in _objects(ipam.get("routes"))
            if (destination := _find_subnet(route.get("dst"))) is not None and destination.version == version
        ]
        is_reached = any(route.prefixlen and one in route for route, _ in routes for one in outside)
        is_used = needs_default or any(not gw for _, gw in routes)
        if outside and len(outside) == len(gateways) and is_used and not is_reached:
            where = ", ".join(map(str, subnets))
            yield f'"gateway": {outside[0]} is outside of {where}, so no route can lead through it'


def _objects(value: JsonValue) -> Iterator[JsonObject]:
    yield from (one for one in (value if isinstance(value, list | tuple) else ()) if isinstance(one, Mapping))


def _find_subnet(text: JsonValue) -> IPv4Network | IPv6Network | None:
    with suppress(ValueError):
        return ip_network(text, strict=False) if isinstance(text, str) else None
    return None


def _find_address(text: JsonValue) -> IPv4Address | IPv6Address | None:
    """Return an address, IPv4 in IPv6's form as IPv4; None if it is none."""
    with suppress(ValueError):
        found = ip_address(text) if isinstance(text, str) else None
        return getattr(found, "ipv4_mapped", None) or found
    return None


RULES_BY_ADDRESS: Final = frozenset({"firewall"})
"""Types of plugins that find their rules by the result's addresses alone, whichever container has these addresses.

All other known plugins find their work by the container's ID or name, or in its namespace; or they delete nothing.
"""


def needs_rules(
    plugin: str, addresses: Collection[str], *, other_types: Collection[str] | None, other_addresses: Collection[str]
) -> bool:
    """Return whether another attachment needs rules that the DEL of `plugin` would remove.

    The other attachment is one that is not being deleted. If it needs the rules, `plugin` receives no result and leaves
    them; the DEL of the other attachment removes them later. One whose list lacks the plugin does not count.

    Addresses have no prefixes. `other_types` are the other attachment's types of plugins; None if they are unknown,
    which counts as needing the rules.
    """
    if plugin not in RULES_BY_ADDRESS or not set(addresses).intersection(other_addresses):
        return False
    return other_types is None or plugin in other_types
