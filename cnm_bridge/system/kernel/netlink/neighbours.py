# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds and sets the permanent neighbours of a link.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

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
_PROXY: Final = 0x08  # NTF_PROXY


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
