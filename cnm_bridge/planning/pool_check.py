# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks that Docker's IPAM and the plugins' IPAM have the same subnet and gateway; pure."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from cni_bridge_spec import JsonObject, find_object, find_str, get_list, get_objects
from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.errors import Refused

__all__ = ["refuse_other_pools"]

_HOST_LOCAL: Final = "host-local"


def refuse_other_pools(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> None:
    """Refuse pools that the list's IPAM plugin does not have.

    Only two plugins can be checked: `host-local` by its ranges, and `static`, which accepts any address. For others,
    the result of ADD is checked.

    Raises:
        Refused: A pool or its gateway differs from the list's.
    """
    ipam = next((find_object(p.document, "ipam") or {} for p in network.plugins if p.ipam_type), None)
    if not pools or ipam is None or ipam.get("type") != _HOST_LOCAL:
        return
    known = _subnets(ipam)
    for pool in pools:
        if pool.subnet not in known:
            has = ", ".join(map(str, known)) or "none"
            raise Refused(
                f"Docker's IPAM driver chose {pool.subnet}, but the addresses of this network come from its CNI "
                f"configuration {network.name}, which has {has}; create it with --ipam-driver null, or from "
                "Engine 28 on --ipv4=false, and without --subnet, or with a --subnet that is the configuration's"
            )
        gateway = known[pool.subnet]
        if pool.gateway is not None and pool.gateway != gateway:
            raise Refused(
                f"Docker's IPAM driver uses {pool.gateway} as the gateway of {pool.subnet}, but CNI configuration "
                f"{network.name} uses {gateway}; create the network with --gateway {gateway}"
            )


def _subnets(ipam: JsonObject) -> dict[IPv4Network | IPv6Network, IPv4Address | IPv6Address]:
    """Return the subnets of host-local with their gateways; the default gateway is the first address."""
    ranges = [ipam] if find_str(ipam, "subnet") else []
    for item in get_list(ipam, "ranges"):
        ranges += get_objects({"ranges": item}, "ranges")
    found: dict[IPv4Network | IPv6Network, IPv4Address | IPv6Address] = {}
    for item in ranges:
        try:
            subnet = ip_network(find_str(item, "subnet") or "", strict=False)
            gateway = find_str(item, "gateway")
            found[subnet] = ip_address(gateway) if gateway else subnet.network_address + 1
        except ValueError:  # the plugin reports it
            continue
    return found
