# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The address ranges of `host-local` or `cni-ipam-etcd` in a list, and whether Docker's IPAM has other pools; pure.

Where Docker's IPAM chooses a pool, its subnet and gateway must be those of the plugins' IPAM.

A section of another shape is a `JsonError`; a range with an invalid address is left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_object, find_str, get_list, get_objects
from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import NULL_IPAM, Refused

HOST_LOCAL: Final = "host-local"
ETCD: Final = "cni-ipam-etcd"
RANGED: Final = frozenset({HOST_LOCAL, ETCD})
"""IPAM plugins whose section has host-local's `subnet` or `ranges`."""
_DATA_DIR: Final = "/var/lib/cni/networks"
_IPV4: Final = 4
_WITHOUT_POOL: Final = {
    4: f"with {NULL_IPAM}, or from Engine 28 on --ipv4=false, and without --subnet",
    6: f"with {NULL_IPAM} or without --ipv6",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRange:
    """A range."""

    subnet: IPv4Network | IPv6Network
    first: IPv4Address | IPv6Address
    last: IPv4Address | IPv6Address
    gateway: IPv4Address | IPv6Address

    @property
    def size(self) -> int:
        """The number of addresses that can be assigned."""
        return max(0, int(self.last) - int(self.first) + 1 - self.contains(self.gateway))

    @property
    def is_whole(self) -> bool:
        """Whether it has all addresses of the subnet that a container can have."""
        return (self.first, self.last) == (self.subnet[1], self.subnet[-2 if self.subnet.version == _IPV4 else -1])

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
    """Return the ranges of a list; none if the plugin cannot parse them, which it reports itself."""
    try:
        return parse_ranges(network)
    except JsonError:
        return ()


def parse_ranges(network: NetworkConfigurationList) -> tuple[AddressRange, ...]:
    """Return the ranges of a list without those whose addresses are invalid."""
    return tuple(
        addresses
        for plugin in network.plugins
        if plugin.ipam_type in RANGED
        for document in _range_documents(find_object(plugin.document, "ipam") or {})
        if (addresses := _parse_range(document)) is not None
    )


def ranges_of(ipam: JsonObject) -> tuple[tuple[JsonObject, AddressRange], ...]:
    """Return the ranges of one IPAM section, each with its part of the section, without invalid ones."""
    parsed = ((document, _parse_range(document)) for document in _range_documents(ipam))
    return tuple((document, addresses) for document, addresses in parsed if addresses is not None)


def reservation_directories(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return the directories in which host-local keeps the reservations of all networks."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProblem:
    """A difference between Docker's IPAM and that of the plugins."""

    text: str
    remedy: str


def find_pool_problem(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> PoolProblem | None:
    """Return the first difference of subnet or gateway, None if there is none.

    Only some plugins can be checked: those with ranges, and `static`, which accepts any address. For others,
    the result of ADD is checked. A pool that this driver has given Docker replaces the list's own ranges.
    """
    ipam_type = next((plugin.ipam_type for plugin in network.plugins if plugin.ipam_type), None)
    others = [pool for pool in pools if not pool.is_own]
    if not others or ipam_type not in RANGED:
        return None
    known = {addresses.subnet: addresses.gateway for addresses in parse_ranges(network)}
    for pool in others:
        if pool.subnet not in known:
            has = ", ".join(map(str, known)) or "none"
            return PoolProblem(
                text=f"Docker's IPAM driver chose {pool.subnet}, but the addresses of this network come from its CNI "
                f"configuration {network.name}, which has {has}",
                remedy=f"remove the network, and create it {_WITHOUT_POOL[pool.subnet.version]}, or with a --subnet "
                "that is the configuration's",
            )
        gateway = known[pool.subnet]
        if pool.gateway is not None and pool.gateway != gateway:
            return PoolProblem(
                text=f"Docker's IPAM driver uses {pool.gateway} as the gateway of {pool.subnet}, but CNI configuration "
                f"{network.name} uses {gateway}",
                remedy=f"remove the network, and create it with --gateway {gateway}",
            )
    return None


def refuse_other_pools(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> None:
    """Refuse pools that the list's IPAM plugin does not have."""
    problem = find_pool_problem(network, pools)
    if problem is not None:
        raise Refused(f"{problem.text}; {problem.remedy}")


def refuse_outside(network: NetworkConfigurationList, wanted: Iterable[IPv4Address | IPv6Address], origin: str) -> None:
    """Refuse `cni.ips` outside host-local's ranges; host-local's own error does not name them."""
    ranges = parse_ranges(network) if network.plugins[0].ipam_type == HOST_LOCAL else ()
    for address in wanted:
        if ranges and not any(one.contains(address) for one in ranges):
            has = ", ".join(str(one.subnet) if one.is_whole else f"{one.first} to {one.last}" for one in ranges)
            raise Refused(
                f"cni.ips: {address} is not an address of CNI configuration {network.name} ({origin}), which has {has}"
            )
