# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The address ranges of `host-local` in a network configuration list; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_object, find_str, get_list, get_objects
from cni_invoker import NetworkConfigurationList

HOST_LOCAL: Final = "host-local"
_DATA_DIR: Final = "/var/lib/cni/networks"
_IPV4: Final = 4


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

    def is_apart(self, other: "AddressRange") -> bool:
        """Return whether two ranges have no address in common, as those of several networks on one LAN."""
        return int(self.last) < int(other.first) or int(other.last) < int(self.first)


def overlap(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    """Return whether two subnets have addresses in common."""
    return one.version == other.version and one.overlaps(other)


def find_ranges(network: NetworkConfigurationList) -> tuple[AddressRange, ...]:
    """Return the ranges of a list's host-local; none if the plugin cannot parse them, which it reports itself."""
    try:
        return parse_ranges(network)
    except JsonError:
        return ()


def parse_ranges(network: NetworkConfigurationList) -> tuple[AddressRange, ...]:
    """Return the ranges of a list's host-local without those whose addresses are invalid.

    Raises:
        JsonError: They have another shape.
    """
    return tuple(
        found
        for plugin in network.plugins
        if plugin.ipam_type == HOST_LOCAL
        for one in _range_documents(find_object(plugin.document, "ipam") or {})
        if (found := _parse_range(one)) is not None
    )


def reservation_directories(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return the directories in which host-local keeps the reservations of all networks.

    Raises:
        JsonError: The list names one that is not a text.
    """
    return tuple(
        find_str(find_object(plugin.document, "ipam") or {}, "dataDir") or _DATA_DIR
        for plugin in network.plugins
        if plugin.ipam_type == HOST_LOCAL
    )


def _range_documents(ipam: JsonObject) -> Iterator[JsonObject]:
    if find_str(ipam, "subnet"):
        yield ipam
    for ranges in get_list(ipam, "ranges"):
        yield from get_objects({"ranges": ranges}, "ranges")


def _parse_range(document: JsonObject) -> AddressRange | None:
    subnet_text, *texts = (find_str(document, key) for key in ("subnet", "rangeStart", "rangeEnd", "gateway"))
    try:
        subnet = ip_network(subnet_text or "", strict=False)
        first, last, gateway = (ip_address(text) if text else None for text in texts)
        return AddressRange(
            subnet=subnet,
            first=first or subnet[1],
            last=last or (subnet[-2] if subnet.version == _IPV4 else subnet[-1]),
            gateway=gateway or subnet[1],
        )
    except (ValueError, IndexError):
        return None
