# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parses the addresses that the user requests for a container (`cni.ips`); pure."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, ip_address, ip_interface
from typing import Final

from cnm_bridge.core.errors import BadOption

WantedAddress = IPv4Address | IPv6Address
"""A requested address; an `ip_interface` if its prefix length is requested as well."""

IPS: Final = "cni.ips"
_SLASH: Final = "/"
_ALL: Final = IPv4Address("255.255.255.255")
_SMALLEST: Final = 31


def parse_ips(text: str) -> tuple[WantedAddress, ...]:
    """Return the addresses of the option.

    Raises:
        BadOption: One is malformed, cannot be assigned to a container, or is given twice.
    """
    addresses: list[WantedAddress] = []
    for part in text.split(","):
        word = part.strip()
        try:
            address = ip_interface(word) if _SLASH in word else ip_address(word)
        except ValueError as exc:
            raise BadOption(
                IPS,
                f"{word!r} is not an address; give one or more with commas, such as 10.1.0.9 or 10.1.0.9/24,fd00::9/64",
            ) from exc
        why = _why_unassignable(address)
        if why is not None:
            raise BadOption(IPS, f"{word} cannot be assigned to a container: it is {why}")
        if any(_without_prefix(address) == _without_prefix(other) for other in addresses):
            raise BadOption(IPS, f"has {word} twice")
        addresses.append(address)
    return tuple(addresses)


def _without_prefix(address: WantedAddress) -> WantedAddress:
    return ip_address(str(address).partition(_SLASH)[0])


def _why_unassignable(address: WantedAddress) -> str | None:
    """Return the reason why a link cannot have an address, None if it can."""
    alone = _without_prefix(address)
    if isinstance(alone, IPv6Address):
        if alone.scope_id is not None:
            return "an address with a scope ID, valid on one link of this host"
        if alone.ipv4_mapped is not None:
            return f"the IPv4-mapped form of {alone.ipv4_mapped}"
    elif isinstance(address, IPv4Interface) and alone in _ends(address.network):
        kind = "network" if alone == address.network.network_address else "broadcast"
        return f"the {kind} address of {address.network}"
    kinds = {
        "the unspecified address": alone.is_unspecified,
        "a loopback address": alone.is_loopback,
        "a multicast address": alone.is_multicast,
        "the broadcast address": alone == _ALL,
    }
    return next((kind for kind, applies in kinds.items() if applies), None)


def _ends(network: IPv4Network) -> tuple[IPv4Address, ...]:
    """Return the network and broadcast address; /31 and /32 networks have none (RFC 3021)."""
    return (network.network_address, network.broadcast_address) if network.prefixlen < _SMALLEST else ()
