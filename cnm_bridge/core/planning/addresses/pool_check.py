# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks that Docker's IPAM and the plugins' IPAM have the same subnet and gateway; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.addresses.address_ranges import HOST_LOCAL, parse_ranges

_WITHOUT_POOL: Final = {
    4: "with --ipam-driver null, or from Engine 28 on --ipv4=false, and without --subnet",
    6: "with --ipam-driver null or without --ipv6",
}


_IPV4: Final = 4

_DEFAULT_POOLS: Final = frozenset(
    (
        *(IPv4Network(f"172.{number}.0.0/16") for number in range(17, 32)),
        *IPv4Network("192.168.0.0/16").subnets(new_prefix=20),
    )
)
"""What Docker's IPAM chooses from, if dockerd has no `default-address-pools` (moby `ipamutils/utils.go`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProblem:
    """A difference between Docker's IPAM and that of the plugins.

    Attributes:
        text: What differs.
        remedy: How to create the network instead.
    """

    text: str
    remedy: str


def find_pool_problem(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> PoolProblem | None:
    """Return the first difference of subnet or gateway, None if there is none.

    Only two plugins can be checked: `host-local` by its ranges, and `static`, which accepts any address. For others,
    the result of ADD is checked.

    Raises:
        JsonError: The ranges cannot be parsed.
    """
    ipam_type = next((plugin.ipam_type for plugin in network.plugins if plugin.ipam_type), None)
    if not pools or ipam_type != HOST_LOCAL:
        return None
    known = {one.subnet: one.gateway for one in parse_ranges(network)}
    unused = find_unused_pools(network, pools)
    for pool in pools:
        if pool in unused:
            continue
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


def find_unused_pools(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> tuple[PoolRecord, ...]:
    """Return the IPv4 pools that Docker chose by itself for a list whose host-local has only IPv6 ranges.

    Docker adds such a pool to each network for which the user gives none and does not switch IPv4 off, also to
    `--ipv6 --subnet fd22::/64`. CreateNetwork does not say who chose a pool, so only Docker's own defaults count.

    Raises:
        JsonError: The ranges cannot be parsed.
    """
    versions = {one.subnet.version for one in parse_ranges(network)}
    if not versions or _IPV4 in versions:
        return ()
    return tuple(pool for pool in pools if pool.subnet in _DEFAULT_POOLS)


def refuse_other_pools(network: NetworkConfigurationList, pools: Sequence[PoolRecord]) -> None:
    """Refuse pools that the list's IPAM plugin does not have.

    Raises:
        JsonError: The ranges cannot be parsed.
        Refused: A pool or its gateway differs from the list's.
    """
    problem = find_pool_problem(network, pools)
    if problem is not None:
        raise Refused(f"{problem.text}; {problem.remedy}")
