# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins of a list need from the host, by their types and configurations. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_object, find_str, get_list, get_objects
from cni_invoker import NetworkConfigurationList

__all__ = ["AddressRange", "find_ranges", "forwarding_links", "has_plugin", "needed_modules", "packet_filters"]

_MODULES: Final = {
    "bridge": ("bridge", "veth"),
    "ptp": ("veth",),
    "macvlan": ("macvlan",),
    "ipvlan": ("ipvlan",),
    "vlan": ("8021q",),
    "dummy": ("dummy",),
    "tap": ("tun",),
    "bandwidth": ("ifb", "sch_tbf"),
}
_FILTERING: Final = frozenset({"firewall", "portmap"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRange:
    """A range of host-local.

    Attributes:
        subnet: Its subnet.
        first: The first address that may be assigned.
        last: The last one.
        gateway: The gateway, which is not assigned.
    """

    subnet: IPv4Network | IPv6Network
    first: IPv4Address | IPv6Address
    last: IPv4Address | IPv6Address
    gateway: IPv4Address | IPv6Address

    @property
    def size(self) -> int:
        """The number of addresses that can be assigned."""
        return max(0, int(self.last) - int(self.first) + 1 - self.contains(self.gateway))

    def count(self, addresses: Iterable[IPv4Address | IPv6Address]) -> int:
        """Return how many of some addresses it contains."""
        return sum(map(self.contains, addresses))

    def contains(self, address: IPv4Address | IPv6Address) -> bool:
        """Return whether an address is between the first and the last one."""
        return address.version == self.subnet.version and int(self.first) <= int(address) <= int(self.last)


def has_plugin(network: NetworkConfigurationList, plugin_type: str) -> bool:
    """Return whether a list has a plugin of this type."""
    return any(plugin.type == plugin_type for plugin in network.plugins)


def needed_modules(network: NetworkConfigurationList) -> frozenset[str]:
    """Return the kernel modules that the reference plugins of a list need."""
    return frozenset(module for plugin in network.plugins for module in _MODULES.get(plugin.type, ()))


def packet_filters(network: NetworkConfigurationList) -> frozenset[str]:
    """Return the commands with which the plugins of a list make rules: `iptables`, `nft`, both or none."""
    found = set()
    for plugin in network.plugins:
        if plugin.type in _FILTERING:
            found.add("nft" if find_str(plugin.document, "backend") == "nftables" else "iptables")
        elif plugin.document.get("ipMasq") is True:
            found.add("nft" if find_str(plugin.document, "ipMasqBackend") == "nftables" else "iptables")
    return frozenset(found)


def forwarding_links(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return the links of the host through which it forwards the packets of containers; `` stands for any veth.

    Empty if the host does not forward them, as with `macvlan`.
    """
    return tuple(dict.fromkeys(_forwarding_links(network)))


def _forwarding_links(network: NetworkConfigurationList) -> Iterator[str]:
    for plugin in network.plugins:
        if plugin.type == "bridge" and any(
            plugin.document.get(key) is True for key in ("isGateway", "isDefaultGateway")
        ):
            yield find_str(plugin.document, "bridge") or "cni0"
        elif plugin.type == "ptp":
            yield ""


def find_ranges(network: NetworkConfigurationList) -> tuple[AddressRange, ...]:
    """Return the ranges of a list's host-local; invalid ones, which the plugin reports, are left out."""
    return tuple(
        found
        for plugin in network.plugins
        if plugin.ipam_type == "host-local"
        for one in _range_documents(find_object(plugin.document, "ipam") or {})
        if (found := _parse_range(one)) is not None
    )


def _range_documents(ipam: JsonObject) -> Iterator[JsonObject]:
    try:
        if find_str(ipam, "subnet"):
            yield ipam
        for ranges in get_list(ipam, "ranges"):
            yield from get_objects({"ranges": ranges}, "ranges")
    except JsonError:
        return


def _parse_range(document: JsonObject) -> AddressRange | None:
    try:
        subnet = ip_network(find_str(document, "subnet") or "", strict=False)
        first, last, gateway = (find_str(document, key) for key in ("rangeStart", "rangeEnd", "gateway"))
        return AddressRange(
            subnet=subnet,
            first=ip_address(first) if first else subnet[1],
            last=ip_address(last) if last else subnet[-2] if subnet.version == 4 else subnet[-1],  # noqa: PLR2004
            gateway=ip_address(gateway) if gateway else subnet[1],
        )
    except (JsonError, ValueError, IndexError):
        return None
