# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds, renames, moves, creates and deletes links, with one netlink request each.

Every function works in the namespace of the given netlink socket and raises `OSError` if the kernel refuses.
"""

from dataclasses import dataclass
from errno import ENODEV
from socket import AF_UNSPEC
from typing import Final

from pyroute2.netlink import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_DELLINKPROP, RTM_GETLINK, RTM_GETQDISC, RTM_NEWLINK, RTM_NEWLINKPROP

from cnm_bridge.core.link_state import LinkState
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink, Wanted

_EXT_MASK: Final = ("IFLA_EXT_MASK", 8)  # RTEXT_FILTER_SKIP_STATS: they are half of a link's message, and not used
_IFF_UP: Final = 0x1
_IFF_NOARP: Final = 0x80
_ARPHRD_ETHER: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link in a namespace.

    Attributes:
        altnames: Its alternative names, which it keeps when it moves to another namespace.
        master: The index of the bridge or bond that it is a port of, None if it is no port.
        alias: The text that `ip link set alias` sets, "" if there is none.
        has_peer_beside: Whether it is one end of a veth whose other end is in the same namespace.
    """

    index: int
    is_up: bool
    altnames: tuple[str, ...]
    state: LinkState
    master: int | None = None
    alias: str = ""
    has_peer_beside: bool = False


def get_link(netlink: Netlink, name: str) -> Link:
    """Return the link called `name`; raise ENODEV if there is none."""
    return _get(netlink, ("IFLA_IFNAME", name))


def find_link(netlink: Netlink, name: str) -> Link | None:
    """Return the link called `name`, None if there is none."""
    return _find(netlink, ("IFLA_IFNAME", name))


def find_link_by_altname(netlink: Netlink, altname: str) -> Link | None:
    """Return the link that has `altname` among its alternative names, None if there is none."""
    link = _find(netlink, ("IFLA_ALT_IFNAME", altname))
    return link if link is not None and altname in link.altnames else None  # the kernel also searches ordinary names


def list_links(netlink: Netlink) -> tuple[Link, ...]:
    """Return all links."""
    return tuple(parse_link(message) for message in netlink.dump(RTM_GETLINK, {}, (_EXT_MASK,)))


def find_qdisc(netlink: Netlink, link: Link) -> str | None:
    """Return the kind of a qdisc of a link, None if it has only the kernel's default, which has no handle."""
    for message in netlink.dump(RTM_GETQDISC, {"family": AF_UNSPEC}):
        if message.field("index") == link.index and message.field("handle"):
            return message.text("TCA_KIND") or ""
    return None


def rename_link(netlink: Netlink, link: Link, name: str) -> None:
    """Take a link down and rename it: before Linux 6.2 a link that is up cannot be renamed."""
    netlink.request(RTM_NEWLINK, {"index": link.index, "flags": 0, "change": _IFF_UP})
    netlink.request(RTM_NEWLINK, {"index": link.index}, (("IFLA_IFNAME", name),))


def set_mac(netlink: Netlink, link: Link, mac: str) -> None:
    """Set the Ethernet address of a link, e.g. `ee:77:5c:0d:4a:3b`."""
    netlink.request(RTM_NEWLINK, {"index": link.index}, (("IFLA_ADDRESS", bytes.fromhex(mac.replace(":", ""))),))


def set_mtu(netlink: Netlink, link: Link, mtu: int) -> None:
    """Set the MTU of a link, in bytes."""
    netlink.request(RTM_NEWLINK, {"index": link.index}, (("IFLA_MTU", mtu),))


def move_link(netlink: Netlink, link: Link, namespace_fd: int, name: str | None = None) -> None:
    """Move a link into an open namespace, where it is down and has no addresses or routes; its index may change.

    The kernel moves the link first, and then gives it its new name. So the old name may be visible there for a moment.
    """
    names: Wanted = () if name is None else (("IFLA_IFNAME", name),)
    netlink.request(RTM_NEWLINK, {"index": link.index}, (("IFLA_NET_NS_FD", namespace_fd), *names))


def add_altname(netlink: Netlink, link: Link, altname: str) -> None:
    """Add an alternative name of at most 127 bytes to a link."""
    flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND
    netlink.request(RTM_NEWLINKPROP, {"index": link.index}, _altname(altname), flags=flags)


def remove_altname(netlink: Netlink, link: Link, altname: str) -> None:
    """Remove an alternative name from a link."""
    netlink.request(RTM_DELLINKPROP, {"index": link.index}, _altname(altname))


def make_veth(netlink: Netlink, name: str) -> None:
    """Create a veth pair, both ends down and in this namespace; the kernel names the other end."""
    kind: Wanted = (("IFLA_LINKINFO", (("IFLA_INFO_KIND", "veth"),)),)
    netlink.request(RTM_NEWLINK, {}, (("IFLA_IFNAME", name), *kind), flags=NLM_F_CREATE | NLM_F_EXCL)


def set_alias(netlink: Netlink, link: Link, alias: str) -> None:
    """Set the alias of a link, at most 255 bytes."""
    netlink.request(RTM_NEWLINK, {"index": link.index}, (("IFLA_IFALIAS", alias),))


def delete_link(netlink: Netlink, link: Link) -> None:
    """Delete a virtual link."""
    netlink.request(RTM_DELLINK, {"index": link.index})


def parse_link(message: Message) -> Link:
    """Parse the kernel's message about a link."""
    info = message.nested("IFLA_LINKINFO")
    properties = message.nested("IFLA_PROP_LIST")
    mac = message.find("IFLA_ADDRESS")
    kind = None if info is None else info.text("IFLA_INFO_KIND")
    return Link(
        index=message.field("index"),
        is_up=bool(message.field("flags") & _IFF_UP),
        altnames=() if properties is None else properties.texts("IFLA_ALT_IFNAME"),
        state=LinkState(
            name=message.text("IFLA_IFNAME") or "",
            kind=kind,
            mac=mac.hex(":") if mac is not None and message.field("ifi_type") == _ARPHRD_ETHER else None,
            mtu=message.number("IFLA_MTU") or 0,
            noarp=bool(message.field("flags") & _IFF_NOARP),
        ),
        master=message.number("IFLA_MASTER"),
        alias=message.text("IFLA_IFALIAS") or "",
        has_peer_beside=kind == "veth" and message.find("IFLA_LINK_NETNSID") is None,
    )


def _get(netlink: Netlink, by: tuple[str, str]) -> Link:
    (message,) = netlink.request(RTM_GETLINK, {}, (by, _EXT_MASK))
    return parse_link(message)


def _find(netlink: Netlink, by: tuple[str, str]) -> Link | None:
    try:
        return _get(netlink, by)
    except OSError as exc:
        if exc.errno == ENODEV:
            return None
        raise


def _altname(altname: str) -> Wanted:
    return (("IFLA_PROP_LIST", (("IFLA_ALT_IFNAME", altname),)),)
