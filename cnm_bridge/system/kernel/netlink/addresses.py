# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads, adds and removes the addresses of a link, and its permanent neighbours.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

import struct
from errno import EADDRNOTAVAIL, EEXIST, EINVAL, EPROTO
from ipaddress import IPv6Address, IPv6Interface, ip_interface
from socket import AF_INET, AF_INET6, AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE
from pyroute2.netlink.rtnl import RTM_DELADDR, RTM_GETADDR, RTM_GETNEIGH, RTM_NEWADDR, RTM_NEWNEIGH

from cnm_bridge.core.link_state import NO_PREFIX_ROUTE, Address, IpInterface, Neighbour
from cnm_bridge.system.kernel.netlink.links import Link, set_mtu
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink, render_body
from cnm_bridge.system.kernel.sysctl import has_ipv6, write_ipv6

_IFA_F_NODAD: Final = 0x02
_IFA_F_TENTATIVE: Final = 0x40
_IFA_F_PERMANENT: Final = 0x80
# IFA_F_HOMEADDRESS, IFA_F_PERMANENT, IFA_F_MANAGETEMPADDR, IFA_F_MCAUTOJOIN
_LASTING_FLAGS: Final = 0x10 | 0x80 | 0x100 | 0x400 | NO_PREFIX_ROUTE
_NEVER_POSSIBLE: Final = frozenset({EADDRNOTAVAIL, EEXIST, EINVAL})
"""No link can have the address (multicast, loopback, unspecified), or the link has it. Other errors may pass."""
_SMALLEST_MTU: Final = 1280
"""With a smaller one, the kernel switches IPv6 off on a link (RFC 8200, section 5)."""
_LIFETIMES: Final = struct.Struct("=4I")  # ifa_cacheinfo: preferred and valid lifetime in seconds; two timestamps
_FOR_EVER: Final = 0xFFFFFFFF


def find_addresses(netlink: Netlink, link: Link) -> tuple[Address, ...]:
    """Return the addresses of a link in the kernel's order."""
    return tuple(parse_address(message, link) for message in netlink.dump(RTM_GETADDR, {"index": link.index}))


def find_used(netlink: Netlink) -> frozenset[str]:
    """Return the addresses of all links, without prefixes."""
    return frozenset(
        str(message.address("IFA_LOCAL") or message.address("IFA_ADDRESS")) for message in netlink.dump(RTM_GETADDR, {})
    )


def remove_addresses(netlink: Netlink, link: Link) -> None:
    """Remove the addresses of a link."""
    for present in find_addresses(netlink, link):
        try:
            netlink.request(RTM_DELADDR, _fields(link, present.address), (("IFA_LOCAL", present.address.packed),))
        except OSError as exc:
            if exc.errno != EADDRNOTAVAIL:  # secondary addresses go with their primary
                raise


def add_addresses(netlink: Netlink, link: Link, addresses: tuple[IpInterface, ...]) -> None:
    """Add addresses in the given order, without duplicate address detection.

    For an IPv6 address, enables IPv6 on the link, so the thread must be in the link's namespace; a smaller MTU than
    IPv6 needs, which a container can choose, becomes the one that it needs. IPv6 addresses are ignored if the kernel
    has no IPv6, and so are addresses that the kernel refuses on every link, such as `::1`, or that the link has: a
    plugin may report them, but cannot have made them.
    """
    for address in addresses:
        is_ipv6 = isinstance(address, IPv6Interface)
        if is_ipv6:
            if not has_ipv6():
                continue
            if link.state.mtu < _SMALLEST_MTU:
                set_mtu(netlink, link, _SMALLEST_MTU)
            write_ipv6(link.state.name, "disable_ipv6", 0)
        try:
            netlink.request(
                RTM_NEWADDR,
                {**_fields(link, address), "flags": _IFA_F_NODAD if is_ipv6 else 0},
                (("IFA_LOCAL", address.packed), ("IFA_ADDRESS", address.packed)),
                flags=NLM_F_CREATE | NLM_F_EXCL,
            )
        except OSError as exc:
            if exc.errno not in _NEVER_POSSIBLE:
                raise


def add_further_address(netlink: Netlink, link: Link, address: Address) -> None:
    """Add an address with all attributes that a snapshot holds."""
    netlink.request_raw(RTM_NEWADDR, _complete(link, address), flags=NLM_F_CREATE | NLM_F_EXCL)


def end_detection(netlink: Netlink, link: Link) -> None:
    """End duplicate address detection of a link's lasting addresses, so that they are answered for at once.

    The kernel does not end it for an address that is there, so each is removed and added again, in one call.
    """
    for present in find_addresses(netlink, link):
        if present.flags & _IFA_F_TENTATIVE and present.flags & _IFA_F_PERMANENT and not present.scope:
            removed = render_body(RTM_DELADDR, _fields(link, present.address), (("IFA_LOCAL", present.address.packed),))
            netlink.request_together(
                (RTM_DELADDR, removed, 0),
                (RTM_NEWADDR, _complete(link, present), NLM_F_CREATE | NLM_F_EXCL),
            )


def _complete(link: Link, address: Address) -> bytes:
    """Return a request that adds an address with all attributes that a snapshot holds, without detection."""
    wanted: list[tuple[str, int | str | bytes]] = [
        ("IFA_LOCAL", address.address.packed),
        ("IFA_ADDRESS", (address.peer or address.address).packed),
        ("IFA_FLAGS", address.flags & _LASTING_FLAGS | _IFA_F_NODAD),
    ]
    if address.broadcast is not None:
        wanted.append(("IFA_BROADCAST", address.broadcast.packed))
    if address.metric is not None:
        wanted.append(("IFA_RT_PRIORITY", address.metric))
    if address.label is not None:
        wanted.append(("IFA_LABEL", f"{link.state.name}{address.label}"))
    if address.is_deprecated:
        wanted.append(("IFA_CACHEINFO", _LIFETIMES.pack(0, _FOR_EVER, 0, 0)))
    return render_body(RTM_NEWADDR, {**_fields(link, address.address), "scope": address.scope}, wanted)


def parse_address(message: Message, link: Link) -> Address:
    """Parse the kernel's message about an address of a link."""
    # IFA_LOCAL is the link's address, IFA_ADDRESS the peer's or the same; IPv6 may have IFA_ADDRESS alone.
    address = message.address("IFA_ADDRESS")
    local = message.address("IFA_LOCAL") or address
    if local is None:
        raise OSError(EPROTO, "the kernel reported an address without its value")
    return Address(
        address=ip_interface((local, message.field("prefixlen"))),
        peer=None if address == local else address,
        scope=message.field("scope"),
        flags=message.number("IFA_FLAGS") or message.field("flags"),
        broadcast=message.address("IFA_BROADCAST"),
        metric=message.number("IFA_RT_PRIORITY"),
        label=(message.text("IFA_LABEL") or "").removeprefix(link.state.name) or None,
    )


def _fields(link: Link, address: IpInterface) -> dict[str, int]:
    return {
        "family": AF_INET6 if isinstance(address, IPv6Interface) else AF_INET,
        "prefixlen": address.network.prefixlen,
        "index": link.index,
    }


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
