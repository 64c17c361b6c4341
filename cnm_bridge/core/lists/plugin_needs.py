# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins of a list need from the host, by their types and configurations. Pure."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from ipaddress import IPv6Network
from typing import Final

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cni_invoker.documents.checks import check_ifname
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.errors import Refused
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
    return tuple(dict.fromkeys(_forwarding_links(network)))


def refuse_without_ipv6(network: NetworkConfigurationList, is_ipv6_on: Callable[[str], bool | None]) -> None:
    """Refuse a list that gives IPv6 addresses on a host without IPv6: its ADD would fail.

    Args:
        network: The list.
        is_ipv6_on: Returns whether a link of the host accepts IPv6 addresses; `` stands for a link that is made. None
            if the kernel has no IPv6.

    Raises:
        Refused: A link of the host, or any link, accepts none; or its name is invalid.
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

    Args:
        network: The list.
        existing: The names of the host's links.
        in_use: Whether a container is attached with the list, which then has the device of `host-device`.
    """
    for plugin in network.plugins:
        key = _LINKS.get(plugin.type, "")
        name = _find_text(plugin.document, key)
        if plugin.document.get(_IN_CONTAINER) is True or (key == _DEVICE and in_use):
            continue
        if name and name not in existing:
            yield name, f"{key} of plugin {plugin.type}"


def _forwarding_links(network: NetworkConfigurationList) -> Iterator[str]:
    for plugin in network.plugins:
        if plugin.type == "bridge" and any(
            plugin.document.get(key) is True for key in ("isGateway", "isDefaultGateway")
        ):
            yield bridge_of(plugin.document)
        elif plugin.type == "ptp":
            yield ""


def _find_text(document: JsonObject, key: str) -> str | None:
    """Return a text, None if there is none or if it has another type, which the plugin refuses."""
    value = document.get(key)
    return value if isinstance(value, str) else None
