# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is known of the plugins of a list, by their types and configurations; pure.

What they need from the host; and whether what they make can be moved out of the staging namespace, and what to record
for that.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from ipaddress import IPv6Network
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cni_invoker.documents.checks import check_ifname
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.errors import NotCarriable, Refused
from cnm_bridge.core.link_state import Observation, Sysctl
from cnm_bridge.core.lists.address_ranges import find_ranges

_SYSCTL_FILE: Final = "/etc/sysctl.d/90-cni-bridge.conf"
_FILTERING: Final = frozenset({"firewall", "portmap"})

_DEVICE: Final = "device"
_LINKS: Final[Mapping[str, str]] = {
    "host-device": _DEVICE,
    "ipvlan": "master",
    "macvlan": "master",
    "tap": "bridge",
    "vlan": "master",
}
"""By plugin, the key of a link of the host that it does not make. Without this link ADD fails, usually with the error
"Link not found" (plugins 1.1.1 and 1.9.1)."""
_IN_CONTAINER: Final = "linkInContainer"


def has_plugin(network: NetworkConfigurationList, plugin_type: str) -> bool:
    """Return whether a list has a plugin of this type."""
    return any(plugin.type == plugin_type for plugin in network.plugins)


def packet_filters(network: NetworkConfigurationList) -> frozenset[str]:
    """Return the commands with which the plugins of a list make rules: `iptables`, `nft`, both or none."""
    commands = set()
    for plugin in network.plugins:
        if plugin.type in _FILTERING:
            commands.add("nft" if _find_text(plugin.document, "backend") == "nftables" else "iptables")
        elif plugin.document.get("ipMasq") is True:
            commands.add("nft" if _find_text(plugin.document, "ipMasqBackend") == "nftables" else "iptables")
    return frozenset(commands)


def forwarding_links(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return the links of the host through which it forwards the packets of containers; `` stands for any veth.

    Empty if the host does not forward them, as with `macvlan`.
    """
    links: dict[str, None] = {}
    for plugin in network.plugins:
        is_gateway = any(plugin.document.get(key) is True for key in ("isGateway", "isDefaultGateway"))
        if plugin.type == "bridge" and is_gateway:
            links[bridge_of(plugin.document)] = None
        elif plugin.type == "ptp":
            links[""] = None
    return tuple(links)


def refuse_without_ipv6(network: NetworkConfigurationList, is_ipv6_on: Callable[[str], bool | None]) -> None:
    """Refuse a list that gives IPv6 addresses on a host without IPv6: its ADD would fail.

    `is_ipv6_on` returns whether a link of the host accepts IPv6 addresses; `` stands for a link that is made. It
    returns None if the kernel has no IPv6. A link with an invalid name is refused, too.
    """
    if not any(isinstance(addresses.subnet, IPv6Network) for addresses in find_ranges(network)):
        return
    for link in filter(None, forwarding_links(network)):
        try:
            check_ifname(link)
        except InvalidParameter as exc:
            raise Refused(f"CNI configuration {network.name} cannot be used: plugin bridge: {exc}") from exc
    problem, fix = "", ""
    if is_ipv6_on("") is None:
        problem, fix = "this kernel has no IPv6", "start the host without the kernel parameter ipv6.disable=1"
    elif off := [link for link in forwarding_links(network) if not is_ipv6_on(link)]:
        setting = "net.ipv6.conf.all.disable_ipv6"
        problem, fix = f"{off[0] or 'the link of a container'} on this host accepts none", fix_of_setting(setting, "0")
    if problem:
        raise Refused(
            f"CNI configuration {network.name} gives IPv6 addresses, and {problem}: {fix}; or take the IPv6 "
            "range out of the list"
        )


def fix_of_setting(name: str, value: str) -> str:
    """Return the command that changes a setting of the host, now and after a restart."""
    return f"sysctl -w {name}={value} && echo '{name} = {value}' >>{_SYSCTL_FILE}"


def bridges(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return the names of the bridges on which the plugins of a list put containers."""
    return tuple(bridge_of(plugin.document) for plugin in network.plugins if plugin.type == "bridge")


def bridge_of(plugin: JsonObject) -> str:
    """Return the link that the plugin `bridge` makes or uses, by its configuration."""
    return _find_text(plugin, "bridge") or "cni0"


def host_link(plugins: Iterable[JsonObject]) -> str | None:
    """Return the link of the host that a list's containers are behind: a bridge, or the parent of their links.

    None if they have none in common, as with `ptp`, or if the list does not name it.
    """
    for plugin in plugins:
        if plugin.get(_IN_CONTAINER) is True:
            continue
        kind = _find_text(plugin, "type") or ""
        found = bridge_of(plugin) if kind == "bridge" else _find_text(plugin, _LINKS.get(kind, ""))
        if found:
            return found
    return None


def find_missing_links(
    network: NetworkConfigurationList, existing: Container[str], *, in_use: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the links that the host does not have: the name, and what it is for, such as `master of plugin macvlan`.

    With `in_use`, a container is attached with the list; it then has the device of `host-device`.
    """
    for plugin in network.plugins:
        key = _LINKS.get(plugin.type, "")
        name = _find_text(plugin.document, key)
        if plugin.document.get(_IN_CONTAINER) is True or (key == _DEVICE and in_use):
            continue
        if name and name not in existing:
            yield name, f"{key} of plugin {plugin.type}"


def _find_text(document: JsonObject, key: str) -> str | None:
    """Return a text, None if there is none or if it has another type, which the plugin refuses."""
    value = document.get(key)
    return value if isinstance(value, str) else None


_UNSUITABLE: Final[Mapping[str, str]] = {
    "dhcp": "its daemon loses a link that is moved, and the lease expires; mode sandbox, from Engine 28 on, moves none",
    "vrf": "a VRF cannot be moved into the container",
    "weave-net": "it adds packet filter rules in the container, which cannot be moved into it",
}

_KNOWN: Final = frozenset(
    {
        *("bandwidth", "bridge", "egress", "firewall", "host-device", "ipvlan", "macvlan"),
        *("portmap", "ptp", "sbr", "tap", "tuning", "vlan"),
    }
)
"""Plugins whose changes in the container's namespace are known: no packet filter, and no settings except these and
those in the configuration of `tuning`."""

_KNOWN_IPAM: Final = frozenset({None, "cni-ipam-etcd", "dhcp", "host-local", "static"})
"""IPAM plugins known to change nothing in that namespace."""

_SETTINGS_OF_KNOWN: Final = tuple(
    f"net/{setting}"
    for setting in (
        "ipv4/conf/{ifname}/arp_notify",
        "ipv6/conf/{ifname}/enhanced_dad",
        "ipv6/conf/{ifname}/keep_addr_on_down",
        "ipv6/conf/{ifname}/ndisc_notify",
    )
)


def find_unsuitable(network: NetworkConfigurationList) -> str | None:
    """Return which plugin of a list makes something that cannot be moved, and why; None if there is none."""
    for plugin in network.plugins:
        for name in (plugin.type, plugin.ipam_type):
            if name is not None and name in _UNSUITABLE:
                return f"plugin {name}: {_UNSUITABLE[name]}"
    return None


def choose_observation(network: NetworkConfigurationList, ifname: str) -> Observation:
    """Return what to capture besides links, addresses and routes: everything if a plugin is unknown."""
    tuned = tuple(sorted({setting for plugin in network.plugins for setting, _ in _tuned(plugin, ifname)}))
    if not all(plugin.type in _KNOWN and plugin.ipam_type in _KNOWN_IPAM for plugin in network.plugins):
        return Observation(settings=None, stated=tuned, thorough=True)
    return Observation(settings=tuple(setting.format(ifname=ifname) for setting in _SETTINGS_OF_KNOWN), stated=tuned)


def describe_uncarriable(network: NetworkConfigurationList, error: NotCarriable) -> str:
    """Return an error text that says what cannot be moved into the container and which plugin may have made it.

    Only the outcome of all plugins is visible. Plugins that are known not to do this are named only if there are no
    others.
    """
    names = [plugin.type for plugin in network.plugins]
    unknown = [
        name
        for plugin in network.plugins
        for name, known in ((plugin.type, _KNOWN), (plugin.ipam_type, _KNOWN_IPAM))
        if name is not None and name not in known
    ]
    suspects = unknown or names
    who = f"plugin {suspects[0]}" if len(suspects) == 1 else f"one of the plugins {', '.join(suspects)}"
    return (
        f"CNI configuration {network.name} cannot be used: {who} made something in the staging namespace that "
        f"cannot be moved into the container: {error.what}"
    )


def keeps_ipv6(network: NetworkConfigurationList, ifname: str, sysctls: Iterable[Sysctl]) -> bool:
    """Return whether settings switch IPv6 on for the link, also if no plugin configures any.

    The given sysctls override those of the plugin `tuning`.
    """
    settings = dict(setting for plugin in network.plugins for setting in _tuned(plugin, ifname))
    settings |= {sysctl.name: sysctl.value for sysctl in sysctls}
    return settings.get(f"net/ipv6/conf/{ifname}/disable_ipv6") == "0"


def _tuned(plugin: PluginConfiguration, ifname: str) -> Iterator[tuple[str, str]]:
    """Yield path and value of the settings in the configuration of `tuning`; the plugin itself reports invalid ones."""
    if plugin.type != "tuning":
        return
    for path in ("sysctl",), ("args", "cni", "sysctl"):
        place: JsonValue = plugin.document
        for key in path:
            place = place.get(key) if isinstance(place, Mapping) else None
        for name, value in place.items() if isinstance(place, Mapping) else ():
            # a link's name may contain dots, but ours does not
            yield name.replace(".", "/").replace("/IFNAME/", f"/{ifname}/"), str(value)
