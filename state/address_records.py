# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The records of what this driver has IPAM plugins reserve without a link: Docker's pools and addresses, and holds.

A pool stands for a subnet of an IPAM section on disk. An address is either reserved by the section's IPAM plugin, or by
its record alone: the plugin cannot assign an address outside of its ranges, so no plugin has to be asked for one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Final, NewType

from cni_bridge_spec import JsonObject
from cni_bridge_state.records import EndpointId, NetworkId, ProcessRecord

PoolId = NewType("PoolId", str)
AddressId = NewType("AddressId", str)
"""CNI's container ID of a reservation, 64 hexadecimal digits."""
HoldId = NewType("HoldId", str)
"""CNI's container ID of a hold, 64 random hexadecimal digits."""


class AddressPhase(StrEnum):
    """The phase of an address."""

    PENDING = "pending"
    """The intent is stored; the IPAM plugin may have run. After a crash it is released: Docker has no answer."""
    RESERVED = "reserved"
    """Docker has the address."""
    RELEASING = "releasing"
    """Docker has released it; DEL of the IPAM plugin is pending."""


ADDRESS_TRANSITIONS: Final[Mapping[AddressPhase | None, frozenset[AddressPhase | None]]] = {
    None: frozenset({AddressPhase.PENDING, AddressPhase.RESERVED}),
    AddressPhase.PENDING: frozenset({AddressPhase.RESERVED, AddressPhase.RELEASING}),
    AddressPhase.RESERVED: frozenset({AddressPhase.RELEASING}),
    AddressPhase.RELEASING: frozenset({None}),
}
"""From → to; None means "no record". An address without a plugin begins as RESERVED."""


class AddressUse(StrEnum):
    """What Docker has requested an address for."""

    GATEWAY = "gateway"
    ANY = "any"
    """A container, or `--aux-address`: Docker's request is the same for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPoolRecord:
    """A pool that Docker has requested.

    Attributes:
        id: Its ID, which names section and subnet.
        section: The name of the IPAM section.
        subnet: The subnet.
        sub_pool: The part of it that addresses are chosen from (`--ip-range`); None for the whole of it.
        gateway: The section's gateway in that subnet, which is never assigned.
        caller: The process that requested it: an engine. None if that is unknown.
        engine: The ID of the engine that lists a network with it, None until one has.
        created_at: When it was requested, in seconds since 1970.
    """

    id: PoolId
    section: str
    subnet: IPv4Network | IPv6Network
    sub_pool: IPv4Network | IPv6Network | None
    gateway: IPv4Address | IPv6Address | None
    caller: ProcessRecord | None
    engine: str | None
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRecord:
    """The input of the IPAM plugin, which DEL needs again.

    Attributes:
        netns: CNI_NETNS.
        configuration: The list with the IPAM plugin as its only plugin, in one CNI version.
        args: CNI_ARGS, in order.
        capability_args: Capability arguments.
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
        pool: The pool.
        section: The name of the pool's IPAM section, which is CNI's network name.
        phase: The phase.
        use: What it was requested for.
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


class HoldPhase(StrEnum):
    """The phase of a hold."""

    PENDING = "pending"
    """The intent is stored; the IPAM plugin may have run. Without addresses it is new, and is released after a crash.
    With addresses it is being reserved again, which is repeated until the plugin has done so."""
    HELD = "held"
    """The addresses are reserved, whether or not a container has them."""
    RELEASING = "releasing"
    """DEL of the IPAM plugin is pending."""


HOLD_TRANSITIONS: Final[Mapping[HoldPhase | None, frozenset[HoldPhase | None]]] = {
    None: frozenset({HoldPhase.PENDING}),
    HoldPhase.PENDING: frozenset({HoldPhase.PENDING, HoldPhase.HELD, HoldPhase.RELEASING, None}),
    HoldPhase.HELD: frozenset({HoldPhase.PENDING, HoldPhase.HELD, HoldPhase.RELEASING}),
    HoldPhase.RELEASING: frozenset({HoldPhase.RELEASING, None}),
}
"""From → to; None means "no record"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChange:
    """What a container changes about the hold that it has, as soon as it is attached.

    Attributes:
        mac: The MAC that was given for it, None if none was.
        keep_s: How long the hold stays without a container, in seconds; None forever.
    """

    mac: str | None
    keep_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRecord:
    """The addresses and the MAC of a key (`cni.sticky`) on a network, which outlive the container that has them.

    Attributes:
        id: CNI's container ID of the reservation.
        network_id: The Docker network.
        section: The name of the CNI network.
        key: The key.
        phase: The phase.
        addresses: The addresses, with the lengths of their prefixes; empty before the plugin has given them.
        mac: The MAC; None if containers of this network have none of their own.
        reservation: The plugin's input.
        keep_s: How long it stays without a container, in seconds; None forever. It is 0 until a container was attached.
        holder: The endpoint that has it, None if none has.
        change: What its holder changes when it is attached; None if it is, and if there is none.
        expires_at: When it is released unless a container is attached, in seconds since 1970; None if it never is.
        created_at: When it was made, in seconds since 1970.
    """

    id: HoldId
    network_id: NetworkId
    section: str
    key: str
    phase: HoldPhase
    addresses: tuple[str, ...]
    mac: str | None
    reservation: ReservationRecord
    keep_s: int | None
    holder: EndpointId | None
    change: HoldChange | None
    expires_at: int | None
    created_at: int
