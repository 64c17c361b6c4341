# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The MACs that this driver makes, and those that a link cannot have; pure."""

from hashlib import sha256
from ipaddress import IPv4Interface, IPv6Interface
from typing import Final

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.model.dhcp import attachment_with_identifier

_BYTES: Final = 6
_MULTICAST: Final = 0x01
_LOCAL: Final = 0x02
"""Bits of the first byte (IEEE 802)."""

_MAC_IS_FIXED: Final = frozenset({"calico"})
"""Plugins that accept no MAC, and whose agent keeps a static neighbour entry with theirs (Calico: felix)."""


def address_mac(network: str, address: IPv4Interface | IPv6Interface) -> str:
    """Return the MAC that is made of a list's name and an address."""
    return local_mac(sha256(f"{network} {address.ip}".encode()).digest()[:_BYTES])


def client_mac(network: str, client_id: str) -> str:
    """Return the MAC of a client identifier. A server that forgets released leases may choose addresses by the MAC."""
    return local_mac(bytes.fromhex(attachment_with_identifier(network, client_id))[:_BYTES])


def refuse_fixed_mac(network: NetworkConfigurationList) -> None:
    """Refuse a requested MAC on a list with a plugin whose agent relies on its own.

    Raises:
        Refused: The list has such a plugin.
    """
    found = next((plugin.type for plugin in network.plugins if plugin.type in _MAC_IS_FIXED), None)
    if found is not None:
        raise Refused(
            f"plugin {found} of CNI configuration {network.name} does not allow to choose a MAC: its agent has told "
            "the host the MAC that the plugin gave, and a container with another one is unreachable; leave out "
            "--mac-address"
        )


def refuse_multicast(mac: str) -> None:
    """Refuse a multicast address.

    Args:
        mac: Such as 02:00:00:00:00:01.

    Raises:
        Refused: It is one.
    """
    if int(mac.partition(":")[0], 16) & _MULTICAST:
        raise Refused(
            f"MAC {mac} is a multicast address, which a link cannot have; its first byte must be even, such as 02"
        )


def local_mac(octets: bytes) -> str:
    """Return a locally administered unicast MAC, made of six bytes of a hash."""
    first = octets[0] & ~_MULTICAST | _LOCAL
    return bytes((first, *octets[1:])).hex(":")
