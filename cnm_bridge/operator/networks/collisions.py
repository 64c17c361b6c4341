# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What on a host is in the way of a new network. Pure.

Each text says what is in the way, where it is, and what to do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_interface
from pathlib import Path
from typing import Final

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import did_you_mean
from cnm_bridge.core.lists.address_ranges import AddressRange, find_ranges, overlap
from cnm_bridge.core.lists.plugins import bridges
from cnm_bridge.core.planning.addressing import static_addresses
from cnm_bridge.operator.host import HostLink, HostRoute
from cnm_bridge.operator.networks.list_document import bridge_name
from cnm_bridge.operator.networks.wanted import WantedNetwork

_Subnet = IPv4Network | IPv6Network

PREDEFINED: Final = frozenset({"bridge", "default", "host", "none"})
"""Names of networks that Docker keeps for itself (moby `api/types/container`, NetworkMode)."""
_BRIDGE: Final = "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What exists on a host.

    Attributes:
        is_network_of_list: Whether the Docker network of the wanted name is ours, and takes the list of that name.
        docker_subnets: The subnets of Docker's networks, each with the network's name.
        paths: Those of the new list's paths that exist.
    """

    links: Mapping[str, HostLink] = field(default_factory=dict)
    routes: Sequence[HostRoute] = ()
    docker_networks: frozenset[str] = frozenset()
    is_network_of_list: bool = False
    docker_subnets: Sequence[tuple[str, _Subnet]] = ()
    lists: Sequence[NetworkConfigurationList] = ()
    paths: frozenset[Path] = frozenset()


def find_collisions(wanted: WantedNetwork, host: HostFacts) -> Iterator[str]:
    """Yield what is in the way of a new network; nothing for one that can be made."""
    yield from _find_names(wanted, host)
    yield from _find_parent(wanted, host) if wanted.parent is not None else _find_bridge(wanted, host)
    for one in wanted.ranges:
        found = next(_find_overlaps(one, wanted, host), None)  # one that is taken is often taken several times
        if found is not None and not wanted.may_overlap:
            others = "--subnet" if wanted.parent is None else "--subnet or --range"
            yield f"{found}; choose another {others}; or add --allow-overlap if nothing has the same addresses"


def _find_names(wanted: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = wanted.name
    known = _find_list(wanted, host)
    removal = f"cni-bridge network rm --configuration {name}"
    if name in PREDEFINED:
        yield f"Docker keeps the name {name} for a network of its own; choose another NAME"
    elif known is not None and host.is_network_of_list:
        yield (
            f"a Docker network {name} already exists, with its list in {known.source}; choose another NAME, or remove "
            f"both, once no container is on it: {removal}"
        )
    elif name in host.docker_networks:
        yield f"a Docker network {name} already exists; choose another NAME, or remove it: docker network rm {name}"
    elif known is not None:
        yield (
            f"{known.source} already has a list {name}; choose another NAME, or make the Docker network of that list: "
            f"cni-bridge network create {name}, without options of addresses and links; or remove it: {removal}"
        )
    for path in sorted(host.paths - {known.source if known is not None else None}):
        yield f"{path} exists, and would be taken for a part of {name}; choose another NAME, or move it away"


def _find_list(wanted: WantedNetwork, host: HostFacts) -> NetworkConfigurationList | None:
    """Return the list that has the name already."""
    return next((one for one in host.lists if one.name == wanted.name), None)


def _find_parent(wanted: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = wanted.parent or ""
    parent = host.links.get(name)
    if parent is None:
        hint = did_you_mean(name, host.links, "`ip link` shows all", cutoff=0.6)
        yield f"this host has no link {name} for --parent; {hint}"
    elif wanted.mtu is not None and wanted.mtu > parent.mtu:
        yield f"--mtu {wanted.mtu} is more than the MTU of {name}, {parent.mtu}; give at most that"


def _find_bridge(wanted: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = bridge_name(wanted.name)
    for other in host.lists:
        if other.name != wanted.name and name in bridges(other):
            yield f"the list {other.name} in {other.source} uses the bridge {name}; choose another NAME"
    link = host.links.get(name)
    known = _find_list(wanted, host)
    if link is None or (known is not None and name in bridges(known)):  # it goes with the list
        return
    remedy = f"choose another NAME, or remove the link if nothing uses it: ip link del {name}"
    if link.kind != _BRIDGE:
        yield f"the link {name} exists and is not a bridge; {remedy}"
        return
    own = () if wanted.is_isolated else tuple(wanted.ranges)
    gateways = {ip_interface((one.gateway, one.subnet.prefixlen)) for one in own}
    for address in link.addresses:
        if not address.is_link_local and address not in gateways:
            yield f"the bridge {name} exists with the address {address}; {remedy}"


def _find_overlaps(one: AddressRange, wanted: WantedNetwork, host: HostFacts) -> Iterator[str]:
    for name, other in host.docker_subnets:
        if overlap(one.subnet, other):
            yield f"{one.subnet} overlaps {other} of the Docker network {name}"
    for network in host.lists:
        if network.name != wanted.name:
            yield from _find_overlaps_with_list(one, network, may_share=wanted.parent is not None)
    if wanted.parent is not None:
        yield from _find_own_addresses(one, host)
    else:
        yield from _find_overlaps_with_host(one.subnet, host, bridge_name(wanted.name))


def _find_overlaps_with_list(one: AddressRange, network: NetworkConfigurationList, *, may_share: bool) -> Iterator[str]:
    """Yield what a list has of a subnet; `may_share` allows it the same subnet, as on one LAN, with another range."""
    where = f"the list {network.name} in {network.source}"
    for taken in find_ranges(network):
        if overlap(one.subnet, taken.subnet) and not (may_share and one.is_apart(taken)):
            yield f"{one.subnet} overlaps {taken.subnet} of {where}"
    for address in sorted(static_addresses(network), key=int):
        if one.contains(address):
            yield f"{one.subnet} has the address {address} of {where}"


def _find_overlaps_with_host(subnet: _Subnet, host: HostFacts, bridge: str) -> Iterator[str]:
    """Yield the routes and addresses of the host in a subnet, without those of its own bridge."""
    for route in host.routes:
        if route.link != bridge and route.occupies(subnet, host.links):
            through = f" through {route.link}" if route.link else ""
            yield f"{subnet} overlaps the host's route to {route.destination}{through}"
    for name, found in host.links.items():
        for address in found.addresses if name != bridge else ():
            if address.ip in subnet:
                yield f"{subnet} has the host's address {address} on {name}"


def _find_own_addresses(one: AddressRange, host: HostFacts) -> Iterator[str]:
    """Yield the host's addresses that a container on its LAN could get."""
    for name, link in host.links.items():
        for address in link.addresses:
            if one.contains(address.ip) and address.ip != one.gateway:
                yield f"{one.first} to {one.last} has the host's own address {address.ip} on {name}"
