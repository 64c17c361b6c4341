# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Takes the snapshot of a staging namespace, and refuses what it cannot hold: that would be lost silently.

Unsupported routes of the link itself are refused where they are read.
"""

import os
import socket
import struct
from collections.abc import Iterator
from errno import EOPNOTSUPP, EPROTONOSUPPORT
from pathlib import Path
from typing import Final

from pyroute2.netlink import NETLINK_NETFILTER, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR

from cnm_bridge.core.errors import NotCarriable
from cnm_bridge.core.link_state import Snapshot, without_announced
from cnm_bridge.system.kernel.netlink.addresses import find_addresses, find_neighbours
from cnm_bridge.system.kernel.netlink.links import Link, find_qdisc, list_links
from cnm_bridge.system.kernel.netlink.routes import find_routes, find_routes_elsewhere
from cnm_bridge.system.kernel.netlink.rules import find_rules
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sysctl import Baseline, changed_settings

_FALLBACKS: Final = {
    "erspan0": "erspan",
    "gre0": "gre",
    "gretap0": "gretap",
    "ip6_vti0": "vti6",
    "ip6gre0": "ip6gre",
    "ip6tnl0": "ip6tnl",
    "ip_vti0": "vti",
    "sit0": "sit",
    "tunl0": "ipip",
}
"""Links that the kernel creates, down, in every new namespace, depending on the loaded modules: name → kind."""
_LOOPBACK: Final = frozenset({"127.0.0.1/8", "::1/128"})


def capture(netlink: Netlink, link: Link, baseline: Baseline, *, reply_limit_s: float) -> Snapshot:
    """Return the snapshot of a link; raise `NotCarriable` if its namespace has something that a snapshot cannot hold.

    The calling thread and the netlink socket must be in the namespace.
    """
    for other in list_links(netlink):
        if other.index != link.index and not is_kernels_own(other):
            raise NotCarriable(f"a further link, {other.state.name} ({other.state.kind or 'physical'})")
    qdisc = find_qdisc(netlink, link)
    if qdisc is not None:
        raise NotCarriable(f"qdisc {qdisc}")
    if baseline.observation.thorough and (found := tuple(_uncarriable(netlink, link, reply_limit_s))):
        raise NotCarriable("; ".join(found))
    addresses = find_addresses(netlink, link)
    return Snapshot(
        link=link.state,
        addresses=addresses,
        routes=without_announced(find_routes(netlink, link), addresses),
        rules=find_rules(netlink),
        neighbours=find_neighbours(netlink, link),
        sysctls=changed_settings(baseline),
    )


def is_kernels_own(link: Link) -> bool:
    """Return whether the kernel has created a link, which it does in each new namespace."""
    name = link.state.name
    return name == "lo" or (_FALLBACKS.get(name) == link.state.kind and not link.is_up)


def _uncarriable(netlink: Netlink, link: Link, reply_limit_s: float) -> Iterator[str]:
    """Describe everything else in the namespace that a snapshot cannot hold."""
    firewall = find_firewall(reply_limit_s=reply_limit_s)
    if firewall is not None:
        yield f"packet filter rules ({firewall})"
    for loopback in (other for other in list_links(netlink) if other.state.name == "lo"):
        for address in find_addresses(netlink, loopback):
            if str(address.address) not in _LOOPBACK:
                yield f"address {address.address} of lo"
    for address in find_addresses(netlink, link):
        if address.is_leased:
            yield f"address {address.address} with a lifetime, which would expire in the sandbox"
    for route in find_routes_elsewhere(netlink, link):
        yield f"{route}, which does not lead through {link.state.name}"


_GET_TABLES: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ANY_FAMILY: Final = bytes(4)  # nfgenmsg
_IPTABLES: Final = ("ip_tables_names", "ip6_tables_names", "arp_tables_names")


def find_firewall(*, reply_limit_s: float) -> str | None:
    """Return which packet filter has tables in this namespace, in words; None if none has."""
    if _has_nftables(reply_limit_s):
        return "nftables tables"
    for file in _IPTABLES:
        path = Path("/proc/thread-self/net", file)
        if os.access(path, os.R_OK) and path.read_text().strip():
            return "iptables tables"
    return None


def _has_nftables(reply_limit_s: float) -> bool:
    """Return whether a dump of the tables has any; a kernel without nftables has none."""
    try:
        conversation = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    except OSError as exc:
        if exc.errno in {EPROTONOSUPPORT, EOPNOTSUPP}:
            return False
        raise
    with conversation:
        conversation.settimeout(reply_limit_s)
        size = _HEADER.size + len(_ANY_FAMILY)
        conversation.send(_HEADER.pack(size, _GET_TABLES, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + _ANY_FAMILY)
        _, kind, *_ = _HEADER.unpack_from(conversation.recv(65536))
    return kind not in {NLMSG_DONE, NLMSG_ERROR}
