# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What an IPAM plugin receives for one address of a pool, and which address of its result Docker learns; pure.

Docker requests one address at a time, of one family. host-local assigns one of each of its sets of ranges; so it is
given only the ranges of the pool's subnet, and of those only the part that `--ip-range` allows.
"""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressPoolRecord
from cni_invoker import Result
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.ipam.sections import IpamSection
from cnm_bridge.core.lists.address_ranges import AddressRange
from cnm_bridge.core.lists.changes import with_plugins
from cnm_bridge.core.planning.addressing import Addressing, plan_addresses
from cnm_bridge.core.planning.identity import ANY_ARGS

_RANGE_KEYS: Final = frozenset({"subnet", "rangeStart", "rangeEnd", "gateway", "ranges"})
_IPV4: Final = 4
_POINT_TO_POINT: Final = 31
"""From this IPv4 prefix length on, a subnet has neither a network nor a broadcast address (RFC 3021)."""

IpAddress = IPv4Address | IPv6Address


def refuse_address(pool: AddressPoolRecord, address: IpAddress, *, is_gateway: bool) -> None:
    """Refuse an address that no one can have."""
    if address not in pool.subnet:
        raise Refused(
            f"{address} is not in {pool.subnet}, the subnet of IPAM section {pool.section}; choose another address"
        )
    if address == pool.gateway and not is_gateway:
        raise Refused(f"{address} is the gateway of IPAM section {pool.section}; choose another address")
    ends = {pool.subnet.network_address, pool.subnet.broadcast_address}
    if pool.subnet.version == _IPV4 and pool.subnet.prefixlen < _POINT_TO_POINT and address in ends:
        raise Refused(f"{address} is the network or broadcast address of {pool.subnet}; choose another address")


def is_assignable(section: IpamSection, pool: AddressPoolRecord, address: IpAddress) -> bool:
    """Return whether a section's plugin can assign an address; true if its ranges are not known."""
    ranges = section.ranges
    return ranges is None or any(
        addresses.contains(address) for _, addresses in ranges if addresses.subnet == pool.subnet
    )


def plan_address(section: IpamSection, pool: AddressPoolRecord, address: IpAddress | None) -> Addressing:
    """Return the plugin's input for an address, or for any; refuse a section that no longer has the pool's subnet."""
    network = section.configuration
    ranges = section.ranges
    if ranges is not None:
        inside = [(document, addresses) for document, addresses in ranges if addresses.subnet == pool.subnet]
        narrowed = [
            _narrow(document, addresses, pool if address is None else None)
            for document, addresses in inside
            if address is not None or pool.sub_pool is None or _part(addresses, pool) is not None
        ]
        if not narrowed:
            has = ", ".join(dict.fromkeys(str(addresses.subnet) for _, addresses in ranges)) or "none"
            part = pool.sub_pool or pool.subnet
            raise Refused(
                f"{section} has no range in {part} any more, but {has}; put it back, or make the network again"
            )
        ipam = {key: value for key, value in section.ipam.items() if key not in _RANGE_KEYS}
        plugin: JsonObject = {**section.plugin.document, "ipam": {**ipam, "ranges": [[*narrowed]]}}
        network = with_plugins(section.configuration, [plugin])
    if address is None:
        return Addressing(configuration=network)
    planned = plan_addresses(network, (address,), (), internal=False)
    return replace(planned, args=(*ANY_ARGS, *planned.args) if planned.args else ())


def take_address(pool: AddressPoolRecord, result: Result, requested: IpAddress | None) -> IPv4Interface | IPv6Interface:
    """Return the address that Docker learns; refuse any but exactly one, of the pool, and as requested."""
    given = [ip.address for ip in result.ips]
    shown = ", ".join(map(str, given)) or "none"
    if len(given) != 1 or given[0].ip not in pool.subnet:
        raise Refused(
            f"the plugin of IPAM section {pool.section} assigned {shown}; Docker takes exactly one address, in "
            f"{pool.subnet}"
        )
    if requested is not None and given[0].ip != requested:
        raise Refused(
            f"the plugin of IPAM section {pool.section} assigned {shown}, not {requested}: it does not take "
            "requested addresses; leave out --ip and --ip6"
        )
    return given[0]


def _narrow(document: JsonObject, addresses: AddressRange, pool: AddressPoolRecord | None) -> JsonObject:
    """Return a range, restricted to the part of the subnet that a pool chooses from."""
    own = {key: document[key] for key in ("subnet", "rangeStart", "rangeEnd", "gateway") if key in document}
    part = None if pool is None else _part(addresses, pool)
    return own if part is None else {**own, "rangeStart": str(part[0]), "rangeEnd": str(part[1])}


def _part(addresses: AddressRange, pool: AddressPoolRecord) -> tuple[IpAddress, IpAddress] | None:
    """Return the first and last address of a range within `--ip-range`; None without one, and if there is none."""
    if pool.sub_pool is None:
        return None
    first = max(int(addresses.first), int(pool.sub_pool[0]))
    last = min(int(addresses.last), int(pool.sub_pool[-1]))
    kind = type(addresses.first)
    return (kind(first), kind(last)) if first <= last else None
