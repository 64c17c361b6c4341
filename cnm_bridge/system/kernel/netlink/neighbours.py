# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds and sets the permanent neighbours of a link.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

from collections.abc import Iterator
from errno import EPROTO
from ipaddress import IPv6Address
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_GETNEIGH, RTM_NEWNEIGH

from cnm_bridge.core.link_state import Neighbour
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink

_PERMANENT: Final = 0x80  # NUD_PERMANENT
_NOARP: Final = 0x40  # NUD_NOARP
_PROXY: Final = 0x08  # NTF_PROXY
_GROUP: Final = 1  # the multicast bit in the first byte of an Ethernet address


def find_neighbours(netlink: Netlink, link: Link) -> tuple[Neighbour, ...]:
    """Return the permanent neighbours of a link, followed by its proxy entries."""
    of_link = (("NDA_IFINDEX", link.index),)
    return tuple(
        _parse(message, proxy=bool(flags))
        for flags in (0, _PROXY)
        for message in netlink.dump(RTM_GETNEIGH, {"family": AF_UNSPEC, "flags": flags}, of_link)
        if message.field("family") in {AF_INET, AF_INET6}
        and message.field("ifindex") == link.index
        and (flags or message.field("state") & _PERMANENT)
    )


def find_peculiar_neighbours(netlink: Netlink, link: Link) -> Iterator[str]:
    """Describe the entries that plugins made and a `Neighbour` cannot represent."""
    for message in netlink.dump(RTM_GETNEIGH, {"family": AF_UNSPEC}, (("NDA_IFINDEX", link.index),)):
        if message.field("family") not in {AF_INET, AF_INET6} or message.field("ifindex") != link.index:
            continue
        address, state, flags = message.address("NDA_DST"), message.field("state"), message.field("flags")
        if state & _PERMANENT and flags & ~_PROXY:
            yield f"neighbour {address} with flags"
        if _is_made_noarp(message, link):
            yield f"neighbour {address} without ARP"
        if message.number("NDA_FLAGS_EXT"):
            yield f"neighbour {address} that the kernel manages"


def _is_made_noarp(message: Message, link: Link) -> bool:
    """Return whether an entry was set to NOARP; the kernel itself does that for multicast addresses only."""
    mac, address = message.find("NDA_LLADDR"), message.address("NDA_DST")
    if not message.field("state") & _NOARP or link.state.noarp or address is None:
        return False
    return not (address.is_multicast or mac is None or mac[0] & _GROUP)


def set_neighbour(netlink: Netlink, link: Link, neighbour: Neighbour) -> None:
    """Add an entry, replacing one for the same address."""
    fields = {
        "family": AF_INET6 if isinstance(neighbour.address, IPv6Address) else AF_INET,
        "ifindex": link.index,
        "state": _PERMANENT,
        "flags": _PROXY if neighbour.proxy else 0,
    }
    mac = () if neighbour.mac is None else (("NDA_LLADDR", bytes.fromhex(neighbour.mac.replace(":", ""))),)
    wanted = (("NDA_DST", neighbour.address.packed), *mac)
    netlink.request(RTM_NEWNEIGH, fields, wanted, flags=NLM_F_CREATE | NLM_F_REPLACE)


def _parse(message: Message, *, proxy: bool) -> Neighbour:
    address, mac = message.address("NDA_DST"), message.find("NDA_LLADDR")
    if address is None:
        raise OSError(EPROTO, "the kernel reported a neighbour without its address")
    return Neighbour(address=address, mac=mac.hex(":") if mac and not proxy else None, proxy=proxy)
