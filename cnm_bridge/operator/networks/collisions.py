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


def find_collisions(new: WantedNetwork, host: HostFacts) -> Iterator[str]:
    """Yield what is in the way of a new network; nothing for one that can be made."""
    yield from _find_names(new, host)
    yield from _find_parent(new, host) if new.parent is not None else _find_bridge(new, host)
    for chosen in new.ranges:
        found = next(_find_overlaps(chosen, new, host), None)  # what is taken is often taken several times
        if found is not None and not new.may_overlap:
            others = "--subnet" if new.parent is None else "--subnet or --range"
            yield f"{found}; choose another {others}; or add --allow-overlap if nothing has the same addresses"


def _find_names(new: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = new.name
    known = _find_list(new, host)
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


def _find_list(new: WantedNetwork, host: HostFacts) -> NetworkConfigurationList | None:
    """Return the list that has the name already."""
    return next((listed for listed in host.lists if listed.name == new.name), None)


def _find_parent(new: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = new.parent or ""
    parent = host.links.get(name)
    if parent is None:
        hint = did_you_mean(name, host.links, "`ip link` shows all", cutoff=0.6)
        yield f"this host has no link {name} for --parent; {hint}"
    elif new.mtu is not None and new.mtu > parent.mtu:
        yield f"--mtu {new.mtu} is more than the MTU of {name}, {parent.mtu}; give at most that"


def _find_bridge(new: WantedNetwork, host: HostFacts) -> Iterator[str]:
    name = bridge_name(new.name)
    for other in host.lists:
        if other.name != new.name and name in bridges(other):
            yield f"the list {other.name} in {other.source} uses the bridge {name}; choose another NAME"
    link = host.links.get(name)
    known = _find_list(new, host)
    if link is None or (known is not None and name in bridges(known)):  # it goes with the list
        return
    remedy = f"choose another NAME, or remove the link if nothing uses it: ip link del {name}"
    if link.kind != _BRIDGE:
        yield f"the link {name} exists and is not a bridge; {remedy}"
        return
    own = () if new.is_isolated else new.ranges
    gateways = {ip_interface((chosen.gateway, chosen.subnet.prefixlen)) for chosen in own}
    for address in link.addresses:
        if not address.is_link_local and address not in gateways:
            yield f"the bridge {name} exists with the address {address}; {remedy}"


def _find_overlaps(chosen: AddressRange, new: WantedNetwork, host: HostFacts) -> Iterator[str]:
    for name, other in host.docker_subnets:
        if overlap(chosen.subnet, other):
            yield f"{chosen.subnet} overlaps {other} of the Docker network {name}"
    for network in host.lists:
        if network.name != new.name:
            yield from _find_overlaps_with_list(chosen, network, may_share=new.parent is not None)
    if new.parent is not None:
        yield from _find_own_addresses(chosen, host)
    else:
        yield from _find_overlaps_with_host(chosen.subnet, host, bridge_name(new.name))


def _find_overlaps_with_list(
    chosen: AddressRange, network: NetworkConfigurationList, *, may_share: bool
) -> Iterator[str]:
    """Yield what a list has of a subnet; `may_share` allows it the same subnet, as on one LAN, with another range."""
    where = f"the list {network.name} in {network.source}"
    for taken in find_ranges(network):
        if overlap(chosen.subnet, taken.subnet) and not (may_share and chosen.is_apart(taken)):
            yield f"{chosen.subnet} overlaps {taken.subnet} of {where}"
    for address in sorted(static_addresses(network), key=int):
        if chosen.contains(address):
            yield f"{chosen.subnet} has the address {address} of {where}"


def _find_overlaps_with_host(subnet: _Subnet, host: HostFacts, bridge: str) -> Iterator[str]:
    """Yield the routes and addresses of the host in a subnet, without those of its own bridge."""
    for route in host.routes:
        if route.link != bridge and route.occupies(subnet, host.links):
            through = f" through {route.link}{_if_unused(route.link, host)}" if route.link else ""
            yield f"{subnet} overlaps the host's route to {route.destination}{through}"
    for name, found in host.links.items():
        for address in found.addresses if name != bridge else ():
            if address.ip in subnet:
                yield f"{subnet} has the host's address {address} on {name}{_if_unused(name, host)}"


def _if_unused(name: str, host: HostFacts) -> str:
    """Return what to say of a bridge that no plugin uses any more, as one whose list was removed; "" of other links."""
    link = host.links.get(name)
    is_used = link is None or link.kind != _BRIDGE or link.has_ports or any(name in bridges(one) for one in host.lists)
    return "" if is_used else f", an unused bridge (ip link delete {name}, if nothing else needs it)"


def _find_own_addresses(chosen: AddressRange, host: HostFacts) -> Iterator[str]:
    """Yield the host's addresses that a container on its LAN could get."""
    for name, link in host.links.items():
        for address in link.addresses:
            if chosen.contains(address.ip) and address.ip != chosen.gateway:
                yield f"{chosen.first} to {chosen.last} has the host's own address {address.ip} on {name}"
