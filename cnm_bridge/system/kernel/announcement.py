# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Announces the addresses of a link, so that neighbours on other hosts replace what they knew of an earlier one.

An IPv4 address is announced with an ARP announcement (RFC 5227, section 3), an IPv6 address with an unsolicited
neighbour advertisement (RFC 4861, section 7.2.6). The frames are sent from a packet socket: a raw ICMPv6 socket would
choose its source address by the sandbox's own routes, and there is no other way for ARP.
"""

import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cnm_bridge.core.link_state import SCOPE_LINK, Address, IpAddress
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netlink.socket import Netlink

__all__ = ["announce", "frame"]

_ETHERNET: Final = struct.Struct("!6s6sH")
_ARP: Final = struct.Struct("!HHBBH6s4s6s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_ADVERTISEMENT: Final = struct.Struct("!BBHI16sBB6s")

_ETH_P_ARP: Final = 0x0806
_ETH_P_IP: Final = 0x0800
_ETH_P_IPV6: Final = 0x86DD
_BROADCAST: Final = b"\xff" * 6
_ALL_NODES: Final = IPv6Address("ff02::1")
_ALL_NODES_MAC: Final = bytes.fromhex("333300000001")
_MAC_BYTES: Final = 6

_NEIGHBOUR_ADVERTISEMENT: Final = 136
_OVERRIDE: Final = 1 << 29
_TARGET_LINK_LAYER_ADDRESS: Final = 2
_HOP_LIMIT: Final = 255  # others are dropped (RFC 4861, section 7.1.2)
_VERSION_6: Final = 6 << 28


def announce(netlink: Netlink, link: Link) -> tuple[IpAddress, ...]:
    """Announce the addresses of a link, except link-local ones; return them.

    Nothing is announced on a link that does not resolve addresses, or has no Ethernet address.

    Args:
        netlink: A netlink socket in the link's namespace; the thread is in that namespace, too.
        link: The link.

    Raises:
        OSError: The kernel refused; a link that is down is ENETDOWN.
    """
    mac = bytes.fromhex((link.state.mac or "").replace(":", ""))
    addresses = tuple(_announced(find_addresses(netlink, link)))
    if link.state.noarp or len(mac) != _MAC_BYTES or not addresses:
        return ()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as packets:  # protocol 0: it receives nothing
        packets.bind((link.state.name, 0))
        for address in addresses:
            packets.send(frame(mac, address))
    return addresses


def frame(mac: bytes, address: IpAddress) -> bytes:
    """Return the Ethernet frame that announces an address of the link with a MAC."""
    return _arp(mac, address) if isinstance(address, IPv4Address) else _advertisement(mac, address)


def _announced(addresses: Iterable[Address]) -> Iterable[IpAddress]:
    return dict.fromkeys(one.address.ip for one in addresses if one.scope < SCOPE_LINK)


def _arp(mac: bytes, address: IPv4Address) -> bytes:
    """Return a request for the address itself: hosts that know the address learn the MAC from the sender."""
    own = address.packed
    request = _ARP.pack(1, _ETH_P_IP, _MAC_BYTES, len(own), 1, mac, own, bytes(_MAC_BYTES), own)
    return _ETHERNET.pack(_BROADCAST, mac, _ETH_P_ARP) + request


def _advertisement(mac: bytes, address: IPv6Address) -> bytes:
    own, to = address.packed, _ALL_NODES.packed

    def message(checksum: int) -> bytes:
        option = (_TARGET_LINK_LAYER_ADDRESS, 1, mac)
        return _ADVERTISEMENT.pack(_NEIGHBOUR_ADVERTISEMENT, 0, checksum, _OVERRIDE, own, *option)

    length = _ADVERTISEMENT.size
    pseudo_header = own + to + struct.pack("!II", length, socket.IPPROTO_ICMPV6)
    packet = message(_checksum(pseudo_header + message(0)))
    header = _IPV6.pack(_VERSION_6, length, socket.IPPROTO_ICMPV6, _HOP_LIMIT, own, to)
    return _ETHERNET.pack(_ALL_NODES_MAC, mac, _ETH_P_IPV6) + header + packet


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
