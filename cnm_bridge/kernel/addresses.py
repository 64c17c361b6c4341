# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Addresses of a link: read them, and give it others in their place.

Every function works in the namespace of the conversation it is given and raises `OSError` where the kernel refuses.
"""

from errno import EADDRNOTAVAIL
from ipaddress import IPv6Interface, ip_address, ip_interface
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL
from pyroute2.netlink.rtnl import RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR

from cnm_bridge.kernel.links import Link
from cnm_bridge.kernel.netlink import Message, Netlink
from cnm_bridge.kernel.snapshot import Address, IpInterface

__all__ = ["find_addresses", "parse_address", "replace_addresses"]

_IFA_F_NODAD: Final = 0x02


def find_addresses(netlink: Netlink, link: Link) -> tuple[Address, ...]:
    """Give the addresses of a link in the kernel's order."""
    return tuple(parse_address(message) for message in netlink.dump(RTM_GETADDR, {"index": link.index}))


def replace_addresses(netlink: Netlink, link: Link, addresses: tuple[IpInterface, ...]) -> None:
    """Remove the addresses of a link and add `addresses` in their order, ready for use at once.

    IPv6 is switched on for the link where it is off. On a kernel without IPv6 its addresses are passed over.
    """
    for present in find_addresses(netlink, link):
        try:
            netlink.request(RTM_DELADDR, _fields(link, present.address), (("IFA_LOCAL", str(present.address.ip)),))
        except OSError as exc:
            if exc.errno != EADDRNOTAVAIL:  # secondary addresses go with their primary
                raise
    for address in addresses:
        is_ipv6 = isinstance(address, IPv6Interface)
        if is_ipv6 and not _enable_ipv6(link):
            continue
        netlink.request(
            RTM_NEWADDR,
            {**_fields(link, address), "flags": _IFA_F_NODAD if is_ipv6 else 0},
            (("IFA_LOCAL", str(address.ip)), ("IFA_ADDRESS", str(address.ip))),
            flags=NLM_F_CREATE | NLM_F_EXCL,
        )


def parse_address(message: Message) -> Address:
    """Read what the kernel tells about an address."""
    # IFA_ADDRESS is the peer's where there is one: then, and for every IPv4 address, IFA_LOCAL is the link's own
    address = message.text("IFA_ADDRESS") or ""
    local = message.text("IFA_LOCAL") or address
    return Address(
        address=ip_interface(f"{local}/{message.field('prefixlen')}"),
        peer=None if address == local else ip_address(address),
        scope=message.field("scope"),
        flags=message.number("IFA_FLAGS") or message.field("flags"),
    )


def _fields(link: Link, address: IpInterface) -> dict[str, int]:
    return {
        "family": AF_INET6 if isinstance(address, IPv6Interface) else AF_INET,
        "prefixlen": address.network.prefixlen,
        "index": link.index,
    }


def _enable_ipv6(link: Link) -> bool:
    """Switch IPv6 on for a link in the thread's namespace; False on a kernel without it."""
    try:
        Path(f"/proc/sys/net/ipv6/conf/{link.state.name}/disable_ipv6").write_text("0", "ascii")
    except FileNotFoundError:
        return False
    return True
