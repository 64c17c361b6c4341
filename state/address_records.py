# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The records of what this driver has IPAM plugins reserve without a link: Docker's pools and addresses.

A pool stands for a subnet of an IPAM section on disk. An address is either reserved by the section's IPAM plugin, or by
its record alone: the plugin cannot assign an address outside of its ranges, so no plugin has to be asked for one.
"""

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import NewType

from cni_bridge_spec import JsonObject
from cni_bridge_state.phases import AddressPhase

PoolId = NewType("PoolId", str)
AddressId = NewType("AddressId", str)
"""CNI's container ID of a reservation, 64 hexadecimal digits."""


class AddressUse(StrEnum):
    """What Docker has requested an address for."""

    GATEWAY = "gateway"
    ANY = "any"
    """A container, or `--aux-address`: Docker's request is the same for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPoolRecord:
    """A pool that Docker has requested.

    Attributes:
        sub_pool: The part of it that addresses are chosen from (`--ip-range`); None for the whole of it.
        gateway: The section's gateway in that subnet, which is never assigned.
        engine: The ID of the engine that lists a network with it, None until one has.
        created_at: When it was requested, in seconds since 1970.
    """

    id: PoolId
    section: str
    subnet: IPv4Network | IPv6Network
    sub_pool: IPv4Network | IPv6Network | None
    gateway: IPv4Address | IPv6Address | None
    engine: str | None
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRecord:
    """The input of the IPAM plugin, which DEL needs again.

    Attributes:
        configuration: The list with the IPAM plugin as its only plugin, in one CNI version.
        result: The result of ADD, None before.
    """

    netns: str
    configuration: JsonObject
    args: tuple[tuple[str, str], ...]
    capability_args: JsonObject
    result: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRecord:
    """An address that Docker has requested.

    Attributes:
        id: CNI's container ID of the reservation.
        section: The name of the pool's IPAM section, which is CNI's network name.
        address: The address with the prefix length that Docker learns; None before the plugin has given one.
        name: The name of the container, which engines tell from 29.0 on; None if it is not known.
        reservation: The plugin's input; None if no plugin can assign the address, so that its record alone reserves it.
        created_at: When it was requested, in seconds since 1970.
    """

    id: AddressId
    pool: PoolId
    section: str
    phase: AddressPhase
    use: AddressUse
    address: IPv4Interface | IPv6Interface | None
    name: str | None
    reservation: ReservationRecord | None
    created_at: int
