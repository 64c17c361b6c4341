# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares the pools and addresses with the networks that the engine has; pure.

A dockerd that is killed between RequestAddress and its own record never releases the address. The Engine API shows no
pool IDs, so a pool is found by section and subnet.

Only the engine that has requested a pool can say that it does not use it. If the engine lists as many networks of a
section and subnet as there are pools, they are its pools. If it lists fewer, the others may be another engine's, or of
a network that was never made: then no address is released. Such a pool without addresses is forgotten all the same: if
it is in use, it is made again from its ID.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from cni_bridge_state import AddressPhase, AddressPoolRecord, AddressRecord, PoolId
from cnm_bridge.core.engine_facts.network import EngineIpamNetwork
from cnm_bridge.core.ipam.sections import OPTION

Key = tuple[str, IPv4Network | IPv6Network]  # section and subnet


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaimed:
    """What a comparison has found.

    Attributes:
        pools: Pools that the engine has no network for; their addresses are among `addresses`.
        addresses: Addresses that no endpoint or network of the engine has.
        perhaps_foreign: Such addresses of pools that may be another engine's.
        identified: Pools that belong to the engine, which is not stored yet.
    """

    pools: tuple[AddressPoolRecord, ...]
    addresses: tuple[AddressRecord, ...]
    perhaps_foreign: tuple[AddressRecord, ...]
    identified: tuple[AddressPoolRecord, ...]

    def __bool__(self) -> bool:
        return bool(self.pools or self.addresses or self.perhaps_foreign)


def find_unclaimed(
    pools: Sequence[AddressPoolRecord],
    addresses: Sequence[AddressRecord],
    networks: Iterable[EngineIpamNetwork],
    identity: str,
) -> Unclaimed:
    """Compare once; pools and addresses were read before the engine with this ID was asked for its networks."""
    listed: dict[Key, int] = {}
    claimed: dict[Key, set[IPv4Address | IPv6Address]] = {}
    for network in networks:
        for key in _keys_of(network, pools):
            listed[key] = listed.get(key, 0) + 1
            claimed.setdefault(key, set()).update(network.addresses)
    of_engine = _pools_of(identity, pools, listed)
    keys: Mapping[PoolId, Key] = {pool.id: (pool.section, pool.subnet) for pool in pools}
    missing = [
        record
        for record in addresses
        if record.phase is AddressPhase.RESERVED
        and record.address is not None
        and (record.pool not in keys or record.address.ip not in claimed.get(keys[record.pool], ()))
    ]
    with_addresses = {record.pool for record in addresses}
    return Unclaimed(
        pools=tuple(pool for pool in pools if _is_unclaimed(pool, of_engine, with_addresses, listed)),
        addresses=tuple(record for record in missing if record.pool in of_engine),
        perhaps_foreign=tuple(record for record in missing if record.pool not in of_engine),
        identified=tuple(pool for pool in pools if pool.id in of_engine and pool.engine != identity),
    )


def _keys_of(network: EngineIpamNetwork, pools: Sequence[AddressPoolRecord]) -> frozenset[Key]:
    """Return the sections and subnets of a network; without the option, its section is any that has the subnet."""
    named = network.options.get(OPTION)
    if named is not None:
        return frozenset((str(named), subnet) for subnet in network.subnets)
    return frozenset((pool.section, pool.subnet) for pool in pools if pool.subnet in network.subnets)


def _pools_of(identity: str, pools: Sequence[AddressPoolRecord], listed: Mapping[Key, int]) -> frozenset[PoolId]:
    """Return the pools that are the engine's: those that it listed before, and those that it lists all of now."""
    counts: dict[Key, int] = {}
    for pool in pools:
        if pool.engine in {None, identity}:
            counts[pool.section, pool.subnet] = counts.get((pool.section, pool.subnet), 0) + 1
    return frozenset(
        pool.id
        for pool in pools
        if pool.engine == identity
        or (pool.engine is None and counts[pool.section, pool.subnet] <= listed.get((pool.section, pool.subnet), 0))
    )


def _is_unclaimed(
    pool: AddressPoolRecord,
    of_engine: frozenset[PoolId],
    with_addresses: Collection[PoolId],
    listed: Mapping[Key, int],
) -> bool:
    if pool.id in of_engine:
        return not listed.get((pool.section, pool.subnet))
    return pool.engine is None and pool.id not in with_addresses
