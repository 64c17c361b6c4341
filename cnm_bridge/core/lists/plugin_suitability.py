# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decides by plugin type whether what a list makes can be moved out of the staging namespace; pure.

For lists that can be moved, it also chooses what to record.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cni_bridge_spec import JsonValue
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.errors import NotCarriable
from cnm_bridge.core.link_state import Observation, Sysctl

_UNSUITABLE: Final[Mapping[str, str]] = {
    "dhcp": "its daemon loses a link that is moved, and the lease expires; mode sandbox, from Engine 28 on, moves none",
    "vrf": "a VRF cannot be moved into the container",
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

    Args:
        network: The list, whose plugin `tuning` may have settings.
        ifname: The link's name.
        sysctls: Settings of the link that override those.
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
